"""`haloscope serve`: the live what-if page on loopback; every point is computed when it is asked for.

The server only reads: it has no write access to anything, and replies to requests for its own name alone.
"""

from __future__ import annotations

import argparse
import json
import socket
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.commands.live.content import Opened, axes_of, epoch_ratios, opened, page_content
from harness.console import show, stdout
from harness.errors import InputError, unknown
from reports.live import live_page

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

CURVE_POINTS = 17
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}


def main(args: argparse.Namespace) -> int:
    """Record, then serve until Ctrl-C."""
    try:
        import uvicorn
    except ImportError as error:
        raise _missing() from error
    if not 0 <= args.port < 65536:
        raise InputError(f"--port {args.port}: a port from 0, which takes a free one, to 65535")
    bound = _bound(args.host, args.port)
    try:
        app = application(opened(args), _names(args.host))
        host, port = bound.getsockname()[:2]
        show(
            [f"live what-if: http://{'localhost' if host == '127.0.0.1' else host}:{port}/ (Ctrl-C ends it)"], stdout()
        )
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", server_header=False))
        server.run(sockets=[bound])
    finally:
        bound.close()
    return 0


def _missing() -> InputError:
    return InputError("serve needs Starlette, Uvicorn and Plotly: pip install 'haloscope[serve]'")


def _bound(host: str, port: int) -> socket.socket:
    """A bound socket: a port that is taken is known before anything is recorded."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        bound = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise InputError(f"--host {host}: {error.strerror}") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise InputError(f"cannot listen on {host}:{port} ({error.strerror}); give another --port") from error
    return bound


def _names(host: str) -> list[str]:
    """Names that a request may give for this server; others are refused, as those of a foreign page would be."""
    own = [socket.gethostname(), socket.getfqdn()] if host not in ("127.0.0.1", "localhost", "::1") else []
    return ["localhost", "127.0.0.1", "[::1]", host, *own]


def application(made: Opened, names: list[str]) -> Starlette:
    """The page and its points as an application. `names`: host names that it replies to.

    Raises InputError when Starlette or Plotly is not installed.
    """
    try:
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.middleware.trustedhost import TrustedHostMiddleware
        from starlette.responses import HTMLResponse, JSONResponse
        from starlette.routing import Route
    except ImportError as error:
        raise _missing() from error
    axes = {axis["key"]: axis for axis in axes_of(made.explorer.cluster)}
    text = live_page({**page_content(made), "axes": list(axes.values()), "served": True}, made.caption, connects=True)
    replies, lock = Replies(made, axes), Lock()  # a replay is not shared between threads

    def first(_: Request) -> Response:
        return HTMLResponse(text, headers=HEADERS)

    def reply(request: Request) -> Response:
        try:
            with lock:
                found = replies(request.url.path.strip("/"), dict(request.query_params))
        except InputError as error:
            return JSONResponse({"error": str(error)}, 400, headers=HEADERS)
        return JSONResponse(found, headers=HEADERS)

    routes = [Route("/", first), *(Route(f"/{name}", reply) for name in ("point", "curve", "timeline", "ratios"))]
    return Starlette(routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=names)])


class Replies:
    """What the server replies, as JSON values."""

    def __init__(self, made: Opened, axes: dict[str, dict[str, Any]]) -> None:
        self._explorer, self._axes, self._draws = made.explorer, axes, made.draws

    def __call__(self, what: str, given: dict[str, str]) -> Any:
        """The reply to one request. Raises InputError for values that do not fit."""
        values = _values(given.get("state", "{}"))
        if what == "curve":
            return self._curve(values, given.get("axis", ""))
        state = self._explorer.state(values)
        if what == "ratios":
            return epoch_ratios(self._explorer, state, self._draws)
        if what == "timeline":
            return self._explorer.timeline(state, given.get("method", ""))
        return self._explorer.point(state)

    def _curve(self, values: dict[str, Any], key: str) -> list[Any]:
        """Points along an axis, all else as it is; the axis' value in the state is one of them."""
        if key not in self._axes:
            raise unknown("axis", key, self._axes)
        axis = self._axes[key]
        self._explorer.state(values)  # what is wrong in it is said before it is changed
        links = values.get("links", {})
        mine = links.get(axis["kind"], {})
        here = values.get("speed", 1.0) if axis["kind"] is None else mine.get(axis["what"], axis["nominal"])
        xs = sorted({*np.geomspace(axis["low"], axis["high"], CURVE_POINTS).tolist(), here})

        def changed(x: float) -> dict[str, Any]:
            if axis["kind"] is None:
                return {"speed": x}
            return {"links": {**links, axis["kind"]: {**mine, axis["what"]: x}}}

        return [[x, self._explorer.point(self._explorer.state({**values, **changed(x)}))] for x in xs]


def _values(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise InputError("state must be a JSON object")
    return values
