# The operator, and the folder that its init container copies into engine pods. No torch: the engine's image has it.
#   docker build --tag guidedmodel .
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
# Where packages come from, for builders that have a mirror; both may be absent.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
# Its packages are pinned for one architecture: on another one pip would leave them all out, and say nothing.
RUN test "$(uname -m)" = x86_64 || { echo "this image is for x86-64: build it with --platform=linux/amd64" >&2; exit 1; }
WORKDIR /src
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
COPY requirements/operator.txt requirements/build.txt requirements/
RUN python3 -m venv /opt/guidedmodel/venv \
 && python3 -m venv /tmp/build \
 && /opt/guidedmodel/venv/bin/pip install --require-hashes --no-compile -r requirements/operator.txt \
 && /tmp/build/bin/pip install --require-hashes -r requirements/build.txt
COPY pyproject.toml LICENSE README.md ./
COPY engine engine
COPY operator operator
COPY sidecar sidecar
# The plugin folder is what a vLLM image lacks: engine plugin, sidecar and what they share, with the metadata by which
# vLLM finds the plugin. The operator is not for there.
RUN /tmp/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /tmp/wheel . \
 && /opt/guidedmodel/venv/bin/pip install --no-deps --no-compile /tmp/wheel/*.whl \
 && /tmp/build/bin/pip install --no-deps --no-compile --target /opt/guidedmodel/plugin /tmp/wheel/*.whl \
 && rm -r /opt/guidedmodel/plugin/guided_operator /opt/guidedmodel/plugin/bin \
 && /opt/guidedmodel/venv/bin/pip uninstall --yes pip setuptools \
 && chmod -R a+rX /opt/guidedmodel

FROM ${BASE}
COPY --from=build /opt/guidedmodel /opt/guidedmodel
# USER: kopf asks for the user's name, and 65532 has none in passwd.
ENV PATH=/opt/guidedmodel/venv/bin:$PATH HOME=/tmp USER=guidedmodel PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["guidedmodel-operator"]
