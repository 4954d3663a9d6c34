"""Hashes of code for keys of what is kept: of what a class, a function or an object runs, also in other packages
(`used_code`), and of listed files of this project (`listed_code`). `code_version` hashes whole packages.

Comments and docstrings do not count. Files are read and not run; what a file says is kept in the cache folder under
the hash of its content, so that a file is parsed once. A loaded module counts as it was when it was first hashed, until
it is loaded again: this process goes on with that code, whatever becomes of the file.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock

import msgspec

from harness.errors import InputError
from harness.machine._files import kept_json, write_atomically
from harness.user_cache import cache_root

_ROOT = Path(__file__).resolve().parents[2]
_PROJECT = ("harness", "real", "sims")
GPU_KERNELS = ("_cuda", ".triton_code")
"""How the names of modules end of which runs on CPUs use nothing."""

_INSTALLED = ("site-packages", "dist-packages")
_HOLDS_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)
_MOST = 4000
"""Files of which it is kept what they say; with more, only those that were looked up last."""


class _Import(msgspec.Struct, frozen=True, array_like=True):
    """One name of an import statement; `name` is empty for `import module`."""

    module: str
    name: str
    known_as: str
    for_types: bool


class _File(msgspec.Struct, frozen=True, array_like=True):
    """What a file says: the hash of its code, and what it imports."""

    code: str
    imports: tuple[_Import, ...]


def used_code(*things: object, within: str = "harness", apart: Collection[str] = ()) -> str:
    """SHA-256 of the source of classes, functions and objects; arguments as for `used_modules`."""
    return _hash(used_modules(*things, within=within, apart=apart))


def used_modules(*things: object, within: str = "harness", apart: Collection[str] = ()) -> dict[str, str]:
    """Module -> hash of its code, of the classes of things and of all bases, and of what these import, directly or not.

    Imports are followed in this project, in the package of each thing, and to modules that lie beside that package
    unless it is installed; other packages count by their version, which is not part of this hash. A name that a
    package hands out stands for the module that it is from, so other modules of that package do not count.

    Args:
        things: classes, functions and objects.
        within: the package of this project outside of which no module of this project counts.
        apart: endings of names of modules that do not count.
    """
    search = _Search(_tops(things), within, tuple(apart))
    found = search.reached(module for thing in things for module in _modules(thing))
    search.keep()
    return found


def listed_code(*places: str) -> str:
    """SHA-256 of the Python source in files and folders of this project, such as "real/measure", without what they
    import. Raises FileNotFoundError for a place that does not exist, or has no Python file."""
    search, found = _Search(set()), dict[str, str]()
    for place in places:
        path = _ROOT / place
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        if not files or not files[0].is_file():
            raise FileNotFoundError(f"{path} has no Python source to hash")
        names = (file.relative_to(_ROOT).with_suffix("").as_posix().replace("/", ".") for file in files)
        found |= {name: search.said(name, file).code for name, file in zip(names, files, strict=True)}
    search.keep()
    return _hash(found)


def _hash(found: dict[str, str]) -> str:
    return hashlib.sha256(msgspec.json.encode(sorted(found.items()))).hexdigest()


def _modules(thing: object) -> list[str]:
    """The modules of a class and its bases, of an object's class and its bases, or of a function."""
    if not isinstance(thing, type) and callable(thing) and hasattr(thing, "__qualname__"):
        return [thing.__module__]
    kind = thing if isinstance(thing, type) else type(thing)
    return [base.__module__ for base in kind.__mro__ if base.__module__ not in sys.stdlib_module_names]


def _tops(things: tuple[object, ...]) -> set[str]:
    """The packages that the things are of, without those of their bases."""
    return {modules[0].partition(".")[0] for thing in things if (modules := _modules(thing))}


class _Search:
    """Follows imports; what files say is known by the hash of their content, and grows."""

    def __init__(self, tops: set[str], within: str = "harness", apart: tuple[str, ...] = ()) -> None:
        self._known = kept_json(cache_root() / "code.json", dict[str, _File]) or {}
        self._used, self._grown = dict[str, _File](), False
        self._tops, self._within, self._apart = tops, within, apart
        self._beside = {place.parent for top in tops - {*_PROJECT} if (place := _place(top)) is not None}
        self._read = dict[str, _File | None]()
        self._sources = dict[str, Path | None]()
        self._followed = dict[str, bool]()

    def reached(self, begin: Iterator[str]) -> dict[str, str]:
        """Module -> hash of its code, of these modules and all that are followed from them."""
        found, waiting = dict[str, str](), list(begin)
        while waiting:
            module = waiting.pop()
            if module in found or not self._counts(module):
                continue
            said = self._file(module)
            found[module] = said.code if said is not None else ""
            if said is None or not self._follows(module):
                continue
            waiting += [self._origin(each.module, each.name) for each in said.imports if not each.for_types]
        return {module: code for module, code in found.items() if code}

    def keep(self) -> None:
        """Keep what was read for the next time, where the cache folder can be written."""
        if self._grown:
            kept = self._used if len(self._known) > _MOST else self._known
            path = cache_root() / "code.json"
            with suppress(OSError, InputError):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, msgspec.json.encode(kept), durable=False)

    def _counts(self, module: str) -> bool:
        if module.endswith(self._apart):
            return False
        if module.partition(".")[0] in _PROJECT:
            return f"{module}.".startswith(f"{self._within}.") or self._within == "harness"
        return module not in sys.stdlib_module_names

    def _follows(self, module: str) -> bool:
        top = module.partition(".")[0]
        if top not in self._followed:
            self._followed[top] = top in _PROJECT or top in self._tops or self._lies_beside(top)
        return self._followed[top]

    def _lies_beside(self, top: str) -> bool:
        place = _place(top)
        return place is not None and place.parent in self._beside and not set(_INSTALLED) & {*place.parts}

    def _origin(self, module: str, name: str) -> str:
        """The module that `from module import name` is about, "" for one that is not followed."""
        if not self._follows(module):
            return ""
        for _ in range(8):  # a name is handed on from package to package
            if not name or self._source(f"{module}.{name}") is not None:
                return f"{module}.{name}" if name else module
            said, place = self._file(module), self._source(module)
            if said is None or place is None or place.name != "__init__.py":
                return module
            handed = next((each for each in said.imports if each.known_as == name and each.name), None)
            if handed is None:
                return module
            module, name = handed.module, handed.name
        return module

    def _file(self, module: str) -> _File | None:
        """What the source of a module says; None where there is none."""
        if module not in self._read:
            place = self._source(module)
            self._read[module] = None if place is None else self.said(module, place)
        return self._read[module]

    def _source(self, module: str) -> Path | None:
        """`_source_of`, looked up once."""
        if module not in self._sources:
            self._sources[module] = _source_of(module)
        return self._sources[module]

    def said(self, module: str, place: Path) -> _File:
        """What a file says, which is the source of a module; nothing where it cannot be read."""
        content = _content(module, place)
        if content is None:
            return _File("", ())
        package = module if place.name == "__init__.py" else module.rpartition(".")[0]
        key = hashlib.sha256(package.encode() + b"\0" + content).hexdigest()
        if key not in self._known:
            self._known[key], self._grown = _parsed(content, package), True
        self._used[key] = self._known[key]
        return self._known[key]


_CONTENTS = dict[str, tuple[object, bytes]]()
"""Loaded module -> what it was loaded by (`__spec__`, a new one whenever it is loaded again), and its source."""


def _content(module: str, place: Path) -> bytes | None:
    """The source of a module; None where it cannot be read."""
    loaded = getattr(sys.modules.get(module), "__spec__", None)
    by, content = _CONTENTS.get(module, (None, b""))
    if loaded is not None and by is loaded:
        return content
    try:
        content = place.read_bytes()
    except OSError:
        return None
    _CONTENTS[module] = loaded, content
    return content


def _place(top: str) -> Path | None:
    """The file or folder of a package or module that is in no package, without importing it; None if not known."""
    if top in _PROJECT:
        return _ROOT / top
    loaded = sys.modules.get(top)
    folders = [*getattr(loaded, "__path__", ())]
    name = folders[0] if folders else getattr(loaded, "__file__", None)
    return Path(name) if name else None


def _source_of(module: str) -> Path | None:
    """The Python file of a module, without importing it; None where there is none."""
    top, *rest = module.split(".")
    place = _place(top) if top else None
    if place is None:
        return None
    find = _own_source_below if top in _PROJECT else _source_below
    found = find(str(place), tuple(rest))
    return Path(found) if found else None


def _source_below(place: str, rest: tuple[str, ...]) -> str:
    """The Python file of a module by the place of its package and the names below; "" where there is none."""
    if os.path.isfile(place):
        return place if not rest and place.endswith(".py") else ""
    path = os.path.join(place, *rest)
    found = (path + os.sep + "__init__.py", path + ".py")
    return next((each for each in found[: 1 + bool(rest)] if os.path.isfile(each)), "")


_own_source_below = cache(_source_below)  # files of this project come and go with its versions only


_PARSING = Lock()
"""Python 3.11 counts the depth of a tree that it makes once for all threads, and fails where two make one."""


def _parsed(content: bytes, package: str) -> _File:
    """What the source of a module of `package` says; of one that cannot be parsed its bytes."""
    try:
        with _PARSING:
            tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return _File(hashlib.sha256(content).hexdigest(), ())
    imports, waiting = list[_Import](), list[tuple[ast.AST, bool]]([(tree, False)])
    while waiting:
        node, typed = waiting.pop()
        imports += _imports(node, package, typed)
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [each for each in body if not _is_text(each)]  # type: ignore[attr-defined]
        typed = typed or _is_for_types(node)
        waiting += [(each, typed) for each in ast.iter_child_nodes(node) if isinstance(each, _HOLDS_STATEMENTS)]
    return _File(hashlib.sha256(ast.dump(tree).encode()).hexdigest(), tuple(imports))


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _is_text(node: ast.AST) -> bool:
    """Whether a statement is text alone: a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _imports(node: ast.AST, package: str, for_types: bool) -> Iterator[_Import]:
    if isinstance(node, ast.Import):
        yield from (_Import(each.name, "", each.asname or each.name, for_types) for each in node.names)
    elif isinstance(node, ast.ImportFrom):
        parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        module = ".".join([*parents, *([node.module] if node.module else [])])
        for each in node.names:
            yield _Import(module, "" if each.name == "*" else each.name, each.asname or each.name, for_types)
