/* Sums of rows over the entries of a sparse matrix: out[r] = sum of x[columns[e]] for e in [starts[r], starts[r + 1]).

   The rows lie anywhere in memory, and what a core can do meanwhile decides how long they take: a row that is needed
   AHEAD entries later is fetched into the second-level cache, where a core can have more fetches under way than into the
   first. The sums of up to LANES * 16 columns stay in registers. Every column is added in the order of the entries,
   so that results are those of any other loop over them. */

#include <stdint.h>
#include <string.h>

#define AHEAD 32  /* entries */
#define LANES 8   /* vectors of 16 columns that are summed at a time */
#define INLINE static inline __attribute__((always_inline))

typedef float lane16 __attribute__((vector_size(64)));
typedef float lane4 __attribute__((vector_size(16)));
typedef float lane1;

struct sums {
    const void *starts, *columns;
    int64_t entries;
    const float *x;
    int64_t num_columns, width;
    float *out;
};

INLINE int64_t index_at(const void *values, int wide, int64_t at) {
    return wide ? ((const int64_t *)values)[at] : ((const int32_t *)values)[at];
}

/* Whether the entries of a row lie inside the matrix. */
INLINE int inside(const struct sums *s, int wide, int64_t begin, int64_t end) {
    if (begin < 0 || begin > end || end > s->entries)
        return 0;
    int out = 0;
    for (int64_t e = begin; e < end; e++)
        out |= (uint64_t)index_at(s->columns, wide, e) >= (uint64_t)s->num_columns;
    return !out;
}

/* sum_L_N: columns [from, from + tail + L) of a row by N vectors of L columns, of which the last begins at `tail` and
   may overlap the one before. */
#define SUM(L, N)                                                                                                      \
    INLINE void sum_##L##_##N(const struct sums *s, int wide, int64_t begin, int64_t end, int64_t from, int64_t tail,  \
                              float *out) {                                                                            \
        lane##L total[N], read;                                                                                        \
        memset(total, 0, sizeof total);                                                                                \
        const float *x = s->x + from;                                                                                  \
        int64_t last = s->entries - 1, width = s->width;                                                               \
        for (int64_t e = begin; e < end; e++) {                                                                        \
            const float *row = x + index_at(s->columns, wide, e) * width;                                              \
            const float *next = x + index_at(s->columns, wide, e + AHEAD < last ? e + AHEAD : last) * width;           \
            for (int k = 0; k < N - 1; k++) {                                                                          \
                if (L == 16 || k == 0)                                                                                 \
                    __builtin_prefetch(next + L * k, 0, 2);                                                            \
                memcpy(&read, row + L * k, sizeof read);                                                               \
                total[k] += read;                                                                                      \
            }                                                                                                          \
            if (L == 16 || N == 1)                                                                                     \
                __builtin_prefetch(next + tail, 0, 2);                                                                 \
            if (width % 16)                                                                                            \
                __builtin_prefetch(next + tail + L - 1, 0, 2);                                                         \
            memcpy(&read, row + tail, sizeof read);                                                                    \
            total[N - 1] += read;                                                                                      \
        }                                                                                                              \
        for (int k = 0; k < N; k++)                                                                                    \
            memcpy(out + from + (k < N - 1 ? L * k : tail), &total[k], sizeof read);                                   \
    }

SUM(16, 1) SUM(16, 2) SUM(16, 3) SUM(16, 4) SUM(16, 5) SUM(16, 6) SUM(16, 7) SUM(16, 8)
SUM(4, 1) SUM(4, 2) SUM(4, 3) SUM(4, 4)
SUM(1, 1) SUM(1, 2) SUM(1, 3)

#define CASE(L, N)                                                                                                     \
    case N:                                                                                                            \
        sum_##L##_##N(s, wide, begin, end, from, tail, out);                                                           \
        break;

INLINE void sum_16(const struct sums *s, int wide, int64_t begin, int64_t end, float *out) {
    for (int64_t from = 0; from < s->width;) {
        int64_t columns = s->width - from;
        if (columns > LANES * 16)
            columns = LANES * 16;
        if (columns < 16) { /* the rest of a wide row, with columns that are there already */
            from = s->width - 16;
            columns = 16;
        }
        int64_t tail = columns - 16;
        switch ((columns + 15) / 16) { CASE(16, 1) CASE(16, 2) CASE(16, 3) CASE(16, 4) CASE(16, 5) CASE(16, 6) CASE(16, 7) CASE(16, 8) }
        from += columns;
    }
}

INLINE void sum_4(const struct sums *s, int wide, int64_t begin, int64_t end, float *out) {
    int64_t from = 0, tail = s->width - 4;
    switch ((s->width + 3) / 4) { CASE(4, 1) CASE(4, 2) CASE(4, 3) CASE(4, 4) }
}

INLINE void sum_1(const struct sums *s, int wide, int64_t begin, int64_t end, float *out) {
    int64_t from = 0, tail = s->width - 1;
    switch (s->width) { CASE(1, 1) CASE(1, 2) CASE(1, 3) }
}

INLINE int64_t sum_rows(const struct sums *s, int wide, int64_t start, int64_t stop) {
    for (int64_t row = start; row < stop; row++) {
        int64_t begin = index_at(s->starts, wide, row), end = index_at(s->starts, wide, row + 1);
        float *out = s->out + row * s->width;
        if (!inside(s, wide, begin, end))
            return row;
        if (s->width >= 16)
            sum_16(s, wide, begin, end, out);
        else if (s->width >= 4)
            sum_4(s, wide, begin, end, out);
        else
            sum_1(s, wide, begin, end, out);
    }
    return -1;
}

/* Rows [start, stop); `wide`: indices of 8 bytes, not of 4. -1, or the first row with an entry outside the matrix. */
int64_t neighbour_sums(const struct sums *s, int wide, int64_t start, int64_t stop) {
    return wide ? sum_rows(s, 1, start, stop) : sum_rows(s, 0, start, stop);
}
