# The page's modules, from npm.
FROM node:22-bookworm-slim AS browser
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev --ignore-scripts --no-audit --no-fund

# The server's packages, from PyPI, each checked against its hash.
FROM python:3.11-slim-bookworm AS packages
WORKDIR /app
COPY requirements.txt ./
RUN python -m venv .venv \
    && .venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check \
        --require-hashes --no-deps -r requirements.txt

FROM python:3.11-slim-bookworm
WORKDIR /app
# libgomp1 is for llama.cpp; Debian keeps one version of it a release, so there is none to pin.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin cleanroom \
    && install --directory --owner=cleanroom --group=cleanroom --mode=0700 /data
COPY --from=packages /app/.venv .venv
COPY --from=browser /app/node_modules node_modules
COPY LICENSE ./
COPY migrations migrations
COPY frontend frontend
COPY backend backend
# The user that runs it may not write here, so the bytecode is made now.
RUN .venv/bin/python -m compileall -q backend migrations

ENV CLEANROOM_HOST=0.0.0.0 \
    CLEANROOM_DATABASE_URL=sqlite:////data/cleanroom.db \
    PYTHONDONTWRITEBYTECODE=1
USER 10001
VOLUME /data
EXPOSE 8765
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD [".venv/bin/python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8765/healthz', timeout=4)"]
CMD [".venv/bin/python", "-m", "backend"]
