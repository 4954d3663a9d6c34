"""The style of the page: light and dark, narrow and wide, printed."""

PAGE_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5b6470; --line: #d8dde3; --page: #ffffff; --band: #f4f6f8;
  --right: #0b6e4f; --off: #a33b00; --mark: #7a5c00; --right-bg: #e3f4ec; --off-bg: #fbe9e0; --mark-bg: #f8f0d8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7eb; --soft: #9aa4b0; --line: #363d46; --page: #14171b;
  --band: #1d2127; --right: #5fc9a0; --off: #ff9b6a; --mark: #e0c060; --right-bg: #16302a; --off-bg: #3a2418;
  --mark-bg: #332c17; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1.25rem 4rem; max-width: 76rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; } h2 { font-size: 1.3rem; margin: 2.5rem 0 .5rem; }
h2 { border-bottom: 2px solid var(--line); } h3 { font-size: 1.05rem; margin: 2rem 0 .25rem; }
p { margin: .3rem 0 .8rem; } .soft, .verdict { color: var(--soft); } a { color: inherit; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; margin: .4rem 0 .8rem; }
th, td { padding: .22rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { background: var(--band); font-weight: 600; } .number { text-align: right; white-space: nowrap; }
td:first-child { min-width: 13rem; } td.right, td.off, td.soft { white-space: nowrap; }
.right { color: var(--right); } .off { color: var(--off); } .mark { color: var(--mark); }
.paper td { text-align: right; white-space: nowrap; } .paper td:first-child { text-align: left; white-space: normal; }
.paper td a { text-decoration: none; display: block; }
.paper .reproduced { background: var(--right-bg); color: var(--right); }
.paper .contradicted { background: var(--off-bg); color: var(--off); }
.paper .undecided { background: var(--mark-bg); color: var(--mark); }
.paper .input, .paper .none { color: var(--soft); } .paper .theory { color: var(--soft); }
.paper .input a { font-style: italic; }
tr:target, li:target { outline: 2px solid var(--mark); }
img { max-width: 100%; background: #fff; border: 1px solid var(--line); border-radius: 4px; padding: .4rem; }
pre { background: var(--band); padding: .6rem; overflow-x: auto; font-size: .8rem; white-space: pre-wrap;
  overflow-wrap: anywhere; }
ul { margin: .2rem 0 .8rem; padding-left: 1.2rem; } nav ul { columns: 18rem; column-gap: 2.5rem; }
summary { cursor: pointer; }
figure { margin: .6rem 0; } figcaption { color: var(--soft); font-size: .86rem; }
@media print { body { max-width: none; font-size: 11px; } h3, figure, tr { break-inside: avoid; } }
"""
