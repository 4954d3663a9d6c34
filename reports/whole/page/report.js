"use strict";
/* Filters by paper and verdict, which the address holds; figures in a dialog; rows that open what is behind them.
   The address ends with #sylvie-table3 (a place) or with #paper=sylvie&verdict=contradicted&at=sylvie-table3.
   Without this script the page shows everything. */
(() => {
  const all = (query, within = document) => [...within.querySelectorAll(query)];
  const byId = (id) => document.getElementById(id);
  const make = (tag, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };
  const form = byId("filters");
  const said = byId("shown");
  const KINDS = ["paper", "verdict"];
  const known = Object.fromEntries(KINDS.map((kind) => [kind, all(`input[name=${kind}]`, form).map((box) => box.value)]));
  const papers = all(".of-paper").map((section) => ({
    section,
    key: section.dataset.paper,
    lists: all("[data-list]", section),
    items: all(".item", section).map((item) => ({
      section: item,
      claims: all("[data-verdict]", item),
      cells: all("[data-holds]", item),
      folds: all(".all-rows, .by-theory", item).map((fold) => [fold, all("[data-verdict]", fold)]),
      heads: all("h4 + .orderings", item).map((list) => [list.previousElementSibling, list]),
    })),
  }));
  const contents = all("nav li a").map((link) => [link.parentElement, link.getAttribute("href").slice(1)]);
  const total = all("[data-verdict]").length;
  let state = { paper: new Set(), verdict: new Set(), at: "" };

  /* ---- the address ---- */
  function read() {
    const text = location.hash.slice(1);
    const empty = { paper: new Set(), verdict: new Set(), at: "", plain: false };
    if (!text.includes("=")) {
      try {
        return { ...empty, at: decodeURIComponent(text), plain: true };
      } catch {
        return { ...empty, at: text, plain: true };
      }
    }
    const given = new URLSearchParams(text);
    const chosen = (kind) => new Set((given.get(kind) || "").split(",").filter((value) => known[kind].includes(value)));
    return { ...empty, paper: chosen("paper"), verdict: chosen("verdict"), at: given.get("at") || "" };
  }
  function written({ paper, verdict, at }) {
    const parts = [];
    if (paper.size) parts.push(`paper=${[...paper].join(",")}`);
    if (verdict.size) parts.push(`verdict=${[...verdict].join(",")}`);
    if (!parts.length) return at ? `#${at}` : location.pathname + location.search;
    return "#" + parts.concat(at ? [`at=${at}`] : []).join("&");
  }

  /* ---- filters ---- */
  function show() {
    let rows = 0;
    let claims = 0;
    for (const box of all("input", form)) box.checked = state[box.name].has(box.value);
    for (const paper of papers) {
      paper.section.hidden = state.paper.size > 0 && !state.paper.has(paper.key);
      for (const list of paper.lists) list.hidden = state.verdict.size > 0 && !state.verdict.has(list.dataset.list);
      for (const item of paper.items) {
        const left = filterItem(item);
        if (paper.section.hidden) continue;
        rows += left.length;
        claims += left.filter((claim) => "counts" in claim.dataset).length;
      }
    }
    for (const [line, id] of contents) line.hidden = !visible(byId(id));
    document.body.classList.toggle("filtered", state.paper.size + state.verdict.size > 0);
    const number = (count) => count.toLocaleString("en");
    said.textContent = `${number(rows)} of ${number(total)} rows and orderings: ${number(claims)} claims`;
    said.dataset.rows = rows;
    said.dataset.claims = claims;
  }
  function filterItem({ section, claims, cells, folds, heads }) {
    const wanted = state.verdict;
    const left = [];
    for (const claim of claims) {
      claim.hidden = wanted.size > 0 && !wanted.has(claim.dataset.verdict);
      if (!claim.hidden) left.push(claim);
      const opened = claim.nextElementSibling;
      if (opened && opened.classList.contains("opened")) opened.hidden = claim.hidden;
    }
    for (const cell of cells) {
      cell.classList.toggle("dim", wanted.size > 0 && !cell.dataset.holds.split(" ").some((held) => wanted.has(held)));
    }
    for (const [head, list] of heads) head.hidden = list.hidden = ![...list.children].some((line) => !line.hidden);
    section.hidden = wanted.size > 0 && !left.length;
    for (const [fold, within] of folds) {
      fold.hidden = wanted.size > 0 && within.every((claim) => claim.hidden);
      if (wanted.size > 0 && !fold.open && !fold.hidden) {
        fold.open = true;
        fold.dataset.filter = "";
      } else if (wanted.size === 0 && "filter" in fold.dataset) {
        fold.open = false;
        delete fold.dataset.filter;
      }
    }
    return left;
  }
  const visible = (place) => place !== null && !place.closest("[hidden]");

  /* ---- places ---- */
  function reveal(id) {
    for (const place of all(".here")) place.classList.remove("here");
    if (!id) return;
    const place = byId(id);
    if (place === null) {
      said.textContent = `This page has no place named ${id}; it may be of another report.`;
      return;
    }
    if (place.localName === "details") place.open = true;
    for (let fold = place.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    place.classList.toggle("here", place.localName !== "main");
    place.tabIndex = -1;
    place.focus({ preventScroll: true });
    place.scrollIntoView({ block: place.localName === "tr" ? "center" : "start" });
  }
  function go() {
    const asked = read();
    if (asked.plain && asked.at) {
      const { paper, verdict } = state;
      const place = byId(asked.at);
      state = { paper, verdict, at: asked.at };
      show();
      if (place !== null && !visible(place)) state = { paper: new Set(), verdict: new Set(), at: asked.at };
      history.replaceState(null, "", written(state));
    } else state = asked;
    show();
    reveal(state.at);
  }
  function choose() {
    const chosen = (kind) => new Set(all(`input[name=${kind}]:checked`, form).map((box) => box.value));
    state = { paper: chosen("paper"), verdict: chosen("verdict"), at: "" };
    history.pushState(null, "", written(state));
    show();
    reveal("");
    if (form.getBoundingClientRect().top < 1) byId("papers").scrollIntoView();
  }

  /* ---- what is behind a row ---- */
  function toggle(opener) {
    const row = opener.closest("tr");
    const open = opener.getAttribute("aria-expanded") === "true";
    opener.setAttribute("aria-expanded", String(!open));
    if (open) return row.nextElementSibling.remove();
    const behind = make("div", { className: "behind" }, make("p", { textContent: row.dataset.why }), asides(row));
    for (const part of row.closest(".item").querySelector(".basis").children) {
      if (part.localName !== "summary") behind.append(part.cloneNode(true));
    }
    row.after(make("tr", { className: "opened" }, make("td", { colSpan: row.cells.length }, behind)));
  }
  function asides(row) {
    const names = row.closest("table").tHead.rows[0].cells;
    const list = make("dl");
    for (const cell of all(".aside, .less", row)) {
      if (!cell.textContent) continue;
      list.append(make("dt", { textContent: names[cell.cellIndex].textContent + ": " }), make("dd", { textContent: cell.textContent }));
    }
    return list;
  }

  /* ---- figures ---- */
  const dialog = byId("enlarged");
  const canvas = dialog.querySelector(".canvas");
  const size = dialog.querySelector(".size");
  function resize(full) {
    canvas.classList.toggle("full", full);
    size.setAttribute("aria-pressed", String(full));
  }
  function enlarge(figure) {
    byId("enlarged-title").textContent = figure.alt;
    canvas.replaceChildren(make("img", { src: figure.src, alt: figure.alt }));
    resize(innerWidth < 700);
    dialog.showModal();
  }
  size.addEventListener("click", () => resize(!canvas.classList.contains("full")));
  dialog.querySelector(".close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());

  /* ---- the bar of filters stays in sight: places are scrolled to below it ---- */
  function measure() {
    const sticks = getComputedStyle(form).position === "sticky";
    document.documentElement.style.setProperty("--bar", `${sticks ? form.offsetHeight : 0}px`);
  }

  /* ---- start ---- */
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button && button.matches(".more")) toggle(button);
    if (button && button.matches(".enlarge")) enlarge(button.querySelector("img"));
  });
  for (const link of all("a[data-state]")) link.hash = link.dataset.state;
  form.addEventListener("change", choose);
  form.addEventListener("reset", () => setTimeout(choose));
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("popstate", go);
  addEventListener("resize", measure);
  form.hidden = false;
  measure();
  go();
  document.body.dataset.ready = "";
})();
