"""A FastAPI view that redirects any ARK, by DNS and by this machine's table. Run ``uvicorn fastapi_view:app``."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import RedirectResponse

from maptr import ArkSyntaxError, Client, DiscoveryFailed, NoMappingAuthority

client = Client(cache=":memory:")  # one for the program: it caches answers


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    async with client:
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/{path:path}")
async def resolve(request: Request) -> RedirectResponse:
    path, query = request.scope["raw_path"], request.scope["query_string"]  # a parameter has lost its % pairs
    try:
        found = await client.discover_async(path + b"?" + query if query else path)
    except ArkSyntaxError as error:
        raise HTTPException(400, str(error)) from error
    except NoMappingAuthority as error:
        raise HTTPException(404, str(error)) from error
    except DiscoveryFailed as error:  # not known now
        raise HTTPException(503, str(error)) from error
    return RedirectResponse(found.url(), 302)
