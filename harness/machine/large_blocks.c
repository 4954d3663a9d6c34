/* Large blocks of memory, kept by the process and used again; loaded before the C library (LD_PRELOAD).

   The C library maps a block above 32 MiB afresh each time and gives it back when it is freed, so that the system clears
   the same pages for every tensor of every epoch. Here blocks of at least LEAST bytes lie in one reserved range of
   addresses. A freed block is merged with its free neighbours and handed out again, the smallest that fits first; its
   pages stay. The range grows at its end only when nothing fits. Small blocks remain the C library's, in a heap of
   their own, so that they never split a large one. Where the range cannot be reserved, or the table is full, the C
   library serves all.

   Loading it changes nothing: processes are loaded before it is known how large their tensors are. It keeps blocks from
   the call of haloscope_keep_large_blocks on, or from the start where HALOSCOPE_LARGE_BLOCKS is set. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void *__libc_malloc(size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *block);

#define UNIT ((size_t)1 << 16)     /* blocks are whole units, and aligned to one */
#define LEAST ((size_t)1 << 20)    /* bytes */
#define RESERVED ((size_t)1 << 40) /* addresses, not memory */
#define MOST 16384                 /* spans */

/* The range as a list of spans by address, without gaps; no two free ones are neighbours. */
struct span {
    uint32_t start, units, used;
};

static struct span spans[MOST];
static int count;
static char *base;
static int refused; /* the range could not be reserved */
static int keeps;   /* whether large blocks are kept */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void acquire(void) { pthread_mutex_lock(&lock); }
static void release(void) { pthread_mutex_unlock(&lock); }

void haloscope_keep_large_blocks(void) { keeps = 1; }

__attribute__((constructor)) static void begin(void) {
    const char *given = getenv("HALOSCOPE_LARGE_BLOCKS");
    keeps = given && *given;
    pthread_atfork(acquire, release, release);
}

static int reserve(void) {
    if (base || refused)
        return base != NULL;
    void *range = mmap(NULL, RESERVED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    refused = range == MAP_FAILED;
    if (refused)
        return 0;
    madvise(range, RESERVED, MADV_HUGEPAGE);
    base = range;
    return 1;
}

static void insert(int at, struct span span) {
    memmove(spans + at + 1, spans + at, (count - at) * sizeof(struct span));
    spans[at] = span;
    count++;
}

static void drop(int at) {
    count--;
    memmove(spans + at, spans + at + 1, (count - at) * sizeof(struct span));
}

/* The smallest free span with that many units, or a new or longer one at the end of the range; -1: there is none. */
static int find(uint32_t units) {
    int best = -1;
    for (int at = 0; at < count; at++)
        if (!spans[at].used && spans[at].units >= units && (best < 0 || spans[at].units < spans[best].units))
            best = at;
    if (best >= 0)
        return best;
    uint32_t end = count ? spans[count - 1].start + spans[count - 1].units : 0;
    int longer = count && !spans[count - 1].used;
    uint32_t start = longer ? spans[count - 1].start : end;
    if (start + (size_t)units > RESERVED / UNIT)
        return -1;
    if (!longer)
        insert(count, (struct span){end, 0, 0});
    spans[count - 1].units = units;
    return count - 1;
}

static void *take(size_t bytes) {
    uint32_t units = (bytes + UNIT - 1) / UNIT;
    char *block = NULL;
    acquire();
    if (bytes < RESERVED && count < MOST - 2 && reserve()) {
        int at = find(units);
        if (at >= 0) {
            uint32_t rest = spans[at].units - units;
            spans[at].units = units;
            spans[at].used = 1;
            if (rest)
                insert(at + 1, (struct span){spans[at].start + units, rest, 0});
            block = base + spans[at].start * UNIT;
        }
    }
    release();
    return block;
}

static int inside(const void *block) {
    return base && (const char *)block >= base && (const char *)block < base + RESERVED;
}

/* Position of a used block by bisection. */
static int position(const void *block) {
    uint32_t start = ((const char *)block - base) / UNIT;
    int low = 0, high = count - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (spans[middle].start <= start)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static size_t size_of(const void *block) {
    acquire();
    size_t bytes = spans[position(block)].units * UNIT;
    release();
    return bytes;
}

static void give(void *block) {
    acquire();
    int at = position(block);
    spans[at].used = 0;
    if (at + 1 < count && !spans[at + 1].used) {
        spans[at].units += spans[at + 1].units;
        drop(at + 1);
    }
    if (at && !spans[at - 1].used) {
        spans[at - 1].units += spans[at].units;
        drop(at);
    }
    release();
}

void *malloc(size_t bytes) {
    void *block = bytes < LEAST || !keeps ? NULL : take(bytes);
    return block ? block : __libc_malloc(bytes);
}

void free(void *block) {
    if (!inside(block)) {
        __libc_free(block);
        return;
    }
    int before = errno; /* free must keep it */
    give(block);
    errno = before;
}

void *realloc(void *block, size_t bytes) {
    if (!inside(block))
        return __libc_realloc(block, bytes);
    size_t had = size_of(block);
    if (bytes <= had && bytes > had / 2)
        return block;
    void *moved = bytes ? malloc(bytes) : NULL;
    if (moved)
        memcpy(moved, block, bytes < had ? bytes : had);
    if (moved || !bytes)
        free(block);
    return moved;
}

int posix_memalign(void **block, size_t alignment, size_t bytes) {
    if (alignment < sizeof(void *) || alignment & (alignment - 1))
        return EINVAL;
    void *made = bytes < LEAST || !keeps || alignment > UNIT ? NULL : take(bytes);
    if (!made)
        made = __libc_memalign(alignment, bytes);
    if (!made)
        return ENOMEM;
    *block = made;
    return 0;
}

size_t malloc_usable_size(void *block) {
    if (inside(block))
        return size_of(block);
    static size_t (*next)(void *);
    if (!next)
        next = (size_t (*)(void *))dlsym(RTLD_NEXT, "malloc_usable_size");
    return next(block);
}
