"""The review page as a web application: routes over a ReviewSession, behind the guard.

FastAPI is imported when an application is made: whoever only trains or reads corrections does not need it.
"""

from functools import cache
from importlib import resources
from typing import Annotated, Any

from dpssl.errors import InputError, RunFolderError
from dpssl.report.page import style_sheet
from dpssl.review.guard import Guard
from dpssl.review.session import ORDERS, ReviewSession

MOST_ON_A_PAGE = 200
LONGEST_SEARCH = 200
MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@cache
def static_files() -> dict[str, tuple[bytes, str]]:
    """Name -> content and media type: all that may be asked for. Read once, so that no request names a path."""
    folder = resources.files("dpssl.review") / "static"
    files = {file.name: file.read_bytes() for file in folder.iterdir()} | {"style.css": style_sheet().encode()}
    return {name: (content, MEDIA_TYPES[name.rsplit(".", 1)[-1]]) for name, content in files.items()}


def make_app(session: ReviewSession, token: str, hosts: frozenset[str], cookie: str = "dpssl-review") -> Guard:
    """The application; `hosts` are the names it may be reached by."""
    from fastapi import FastAPI, Path, Query
    from fastapi.exceptions import RequestValidationError
    from fastapi.requests import Request
    from fastapi.responses import JSONResponse, Response
    from pydantic import BaseModel, ConfigDict, Field

    class Change(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)
        row: int
        label: int

    class Action(BaseModel):
        model_config = ConfigDict(extra="forbid")
        changes: Annotated[list[Change], Field(min_length=1, max_length=MOST_ON_A_PAGE)]

    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    row_number = Annotated[int, Path(ge=0, lt=session.n_images)]

    @app.exception_handler(InputError)
    def _unusable(_: Request, problem: InputError) -> JSONResponse:
        return JSONResponse({"detail": str(problem)}, status_code=422)

    @app.exception_handler(RequestValidationError)
    def _malformed(_: Request, problem: RequestValidationError) -> JSONResponse:
        """Where it is wrong and how, without the value: it may be one that JSON cannot hold."""
        first = problem.errors()[0]
        return JSONResponse({"detail": f"{'.'.join(map(str, first['loc']))}: {first['msg']}"}, status_code=422)

    @app.exception_handler(RunFolderError)
    def _unwritten(_: Request, problem: RunFolderError) -> JSONResponse:
        return JSONResponse({"detail": str(problem)}, status_code=507)

    @app.get("/")
    def _page() -> Response:
        return _static("index.html")

    @app.get("/static/{name}")
    def _file(name: str) -> Response:
        return _static(name)

    def _static(name: str) -> Response:
        if name not in static_files():
            return Response("no such file\n", status_code=404, media_type="text/plain")
        content, media_type = static_files()[name]
        return Response(content, media_type=media_type)

    @app.get("/pictures/{row}")
    def _picture(row: row_number, large: bool = False) -> Response:
        content, media_type = session.picture(row, large)
        return Response(content, media_type=media_type, headers={"cache-control": "private, max-age=3600"})

    @app.get("/api/run")
    def _about() -> dict[str, Any]:
        return session.about()

    @app.get("/api/images")
    def _images(
        order: Annotated[str, Query(pattern=f"^({'|'.join(ORDERS)})$")] = "useful",
        start: Annotated[int | None, Query(ge=0)] = None,
        count: Annotated[int, Query(ge=1, le=MOST_ON_A_PAGE)] = 40,
        label: int = 0,
        text: Annotated[str, Query(max_length=LONGEST_SEARCH)] = "",
    ) -> dict[str, Any]:
        return session.page(order, start, count, label, text)

    @app.get("/api/images/{row}")
    def _explain(row: row_number) -> dict[str, Any]:
        return session.explain(row)

    @app.get("/api/changes")
    def _changes(since: Annotated[int, Query(ge=0)]) -> dict[str, Any]:
        return session.changes(since)

    @app.post("/api/decisions")
    def _decide(action: Action) -> dict[str, Any]:
        return session.decide([(change.row, change.label) for change in action.changes])

    @app.post("/api/undo")
    def _undo() -> dict[str, Any]:
        return session.undo()

    return Guard(app, token, hosts, cookie)
