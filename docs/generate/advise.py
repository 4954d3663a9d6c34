"""Runs the sessions of `docs/advise.md` and writes their output into it; for a machine that does nothing else.

python -m docs.generate.advise              # all sessions, half an hour on two cores at most
python -m docs.generate.advise --only slow  # one of them: fast, slow or spent
python -m docs.generate.advise --list       # the command lines, without running any

A session is between a pair of marks in the page. The figure is that of `slow`. Needs `HALOSCOPE_DATA`. What a session
trained is kept in `--out`, so that an interrupted call goes on.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent
PAGE, FIGURE = DOCS / "advise.md", DOCS / "advise.png"
COLUMNS = 112
"""Width of the output in the page."""

SESSIONS = {
    "fast": "--dataset cora --features row --hidden 64 --epochs 100 --dropout 0.5 --weight-decay 5e-4 "
    "--cluster hosts=4,device=cpu-epyc-1core,nic=100Mb/s --parts 4 --methods sylvie-s:bits=4,bns-gcn:p=0.5,pipegcn "
    "--within 1 --budget 5m --jobs 1",
    "slow": "--dataset coauthor_physics --features projected --model sage --layers 3 --hidden 256 --epochs 60 "
    "--dropout 0.3 --layer0 precompute --cluster hosts=8,device=cpu-epyc-1core,nic=200Mb/s --parts 8 "
    "--methods sylvie-s:bits=4,sylvie-s:bits=8,bns-gcn:p=0.5 --within 2 --seeds 5 --sample 4000 --budget 15m --jobs 2",
    "spent": "--dataset amazon_computers --model sage --layers 3 --hidden 64 --epochs 60 --dropout 0.3 "
    "--cluster ethernet-1g --parts 8 --within 1 --methods sylvie-s:bits=4,bns-gcn:p=0.5,pipegcn --seeds 3 "
    "--sample 2500 --budget 100s --jobs 1",
}
"""Session -> flags. fast: one device wins; slow: wide rows over a slow link; spent: a budget that is too small."""

DRAWN = "slow"


def main(arguments: list[str] | None = None) -> int:
    """Run sessions and put them into the page; returns 1 where one of them fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=SESSIONS, help="one session")
    parser.add_argument("--list", action="store_true", help="show the command lines and run nothing")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir(), "haloscope-advice"), metavar="DIR")
    args = parser.parse_args(arguments)
    for name in [args.only] if args.only else SESSIONS:
        if args.list:
            print(f"{name}: haloscope advise {SESSIONS[name]}")
            continue
        done = _run(name, args.out / name)
        if done is None:
            return 1
        PAGE.write_text(placed(PAGE.read_text(), name, done))
        print(f"{name}: written to {PAGE.name}")
    return 0


def _run(name: str, out: Path) -> str | None:
    """The session's output, None where it failed."""
    words = [sys.executable, "-m", "harness", "advise", *shlex.split(SESSIONS[name]), "--out", "advice"]
    out.mkdir(parents=True, exist_ok=True)
    surroundings = {**os.environ, "COLUMNS": str(COLUMNS), "PYTHONPATH": str(DOCS.parent), "TERM": "dumb"}
    done = subprocess.run(words, cwd=out, env=surroundings, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(f"{name}: exit code {done.returncode}", file=sys.stderr)
        return None
    if name == DRAWN:
        shutil.copy(out / "advice" / "advice.png", FIGURE)
    return done.stdout


def placed(page: str, name: str, output: str) -> str:
    """The page with a session's command and output between its marks."""
    begin, end = (f"<!-- session {name}: {side} -->" for side in ("begin", "end"))
    if page.count(begin) != 1 or page.count(end) != 1:
        raise SystemExit(f"{PAGE.name} has no place for {name}: {begin} and {end}")
    shown = "\n".join(line.rstrip() for line in output.rstrip().splitlines())
    command = " \\\n    ".join(re.findall(r".{1,100}(?:\s|$)", f"$ haloscope advise {SESSIONS[name]}"))
    command = "\n".join(line.rstrip() if not line.endswith("\\") else line for line in command.splitlines())
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n```\n{command}\n{shown}\n```\n{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    sys.exit(main())
