"""An ARK as the field of a pydantic model: any spelling in, the normal form out."""

from __future__ import annotations

from pydantic import BaseModel, ValidationError

from maptr import Ark


class Thing(BaseModel):
    ark: Ark
    title: str


if __name__ == "__main__":
    thing = Thing.model_validate({"ark": "https://n2t.net/ark:/12148/btv1b8449691v", "title": "Atlas catalan"})
    print(thing.ark.naan, thing.model_dump_json())
    try:
        Thing.model_validate({"ark": "doi:10.1000/1", "title": "no ARK"})
    except ValidationError as error:
        print(error.errors()[0]["msg"])
