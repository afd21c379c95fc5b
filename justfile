# Everything that a developer does; `just` lists it.
default:
    @just --list

fmt:
    uv run ruff format . && uv run ruff check --fix .

lint:
    uv run ruff check . && uv run ruff format --check . && uv run lint-imports

type:
    uv run mypy

test *args:
    uv run pytest {{args}}

# Ratios in one run, never timed tests
bench *args:
    uv run python -m bench {{args}}

# docs/reference/ from the code; a test fails when it is stale
reference *args:
    uv run python -m bench.reference {{args}}

# The kill suite in full: every event boundary, hundreds of kills and cut connections
soak:
    uv run pytest -m soak -n 0
