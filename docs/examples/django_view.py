"""A Django view that redirects any ARK, with the settings and URLs of a minimal project.

Run ``django-admin runserver --pythonpath . --settings django_view``.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import re_path

from maptr import ArkSyntaxError, Client, DiscoveryFailed, NoMappingAuthority

SECRET_KEY = "not used"  # noqa: S105
ALLOWED_HOSTS = ["localhost", "testserver"]
ROOT_URLCONF = "django_view"

client = Client(cache=":memory:")  # one for all requests and threads of the process


def as_received(request: HttpRequest) -> str:
    """Return path and query of the request. ``request.path`` has lost its % pairs and a final ``?``."""
    for name in ("RAW_URI", "REQUEST_URI"):  # gunicorn; uWSGI and mod_wsgi
        if name in request.META:
            return str(request.META[name])
    return request.get_full_path()


def resolve(request: HttpRequest) -> HttpResponse:
    try:
        return HttpResponseRedirect(client.discover(as_received(request)).url())
    except ArkSyntaxError as error:
        return HttpResponse(str(error), status=400, content_type="text/plain")
    except NoMappingAuthority as error:
        return HttpResponse(str(error), status=404, content_type="text/plain")
    except DiscoveryFailed as error:  # not known now
        return HttpResponse(str(error), status=503, content_type="text/plain")


urlpatterns = [re_path(r".*", resolve)]
