# SPDX-License-Identifier: Apache-2.0
# The service in a container: no root, and nothing written but to its volume and /tmp.
# See docs/operations.md.

FROM python:3.13.5-slim-bookworm AS build
WORKDIR /build
COPY deploy/requirements.txt deploy/
# Every package is pinned with its hash. One of them builds the wheel of expunge.
RUN python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir --require-hashes -r deploy/requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /venv/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.13.5-slim-bookworm
RUN useradd --system --uid 10001 --user-group --no-create-home expunge \
    && install -d -m 0700 -o expunge -g expunge /var/lib/expunge
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    EXPUNGE_REGISTRY=/var/lib/expunge/registry
USER 10001:10001
WORKDIR /var/lib/expunge
VOLUME /var/lib/expunge
EXPOSE 8300
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8300/readyz', timeout=4)"]
ENTRYPOINT ["expunge"]
CMD ["serve", "--host", "0.0.0.0"]
