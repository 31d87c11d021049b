"""The options that all verbs have that listen: where, and what a request may cost."""

import click

from keybound.errors import missing

EXTRA = "serve"
PACKAGES = ("fastapi", "starlette", "uvicorn", "h11", "pydantic")

host = click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
port = click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Port to listen on; 0 for any free one.",
)
max_mib = click.option(
    "--max-mib",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Largest recording, in MiB.",
)
max_seconds = click.option(
    "--max-seconds",
    type=click.FloatRange(min=1),
    default=1800.0,
    show_default=True,
    help="Longest recording, in seconds.",
)
streams = click.option(
    "--streams",
    type=click.IntRange(min=1),
    default=16,
    show_default=True,
    help="Streams that are marked as they come, at once.",
)


def absent(error: ModuleNotFoundError) -> Exception:
    """Return the error that names the extra, if it is a package of the extra that is missing."""
    top = (error.name or "").partition(".")[0]
    return missing(top, EXTRA) if top in PACKAGES else error


def address(host: str, port: int) -> str:
    """Return an address as a link begins with it."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
