# fairseq-deep with everything that it needs. For a CPU, then for a GPU whose driver has NVIDIA's container toolkit:
#
#     docker build -t fairseq-deep .
#     docker build -t fairseq-deep:cuda --build-arg TORCH_INDEX=https://pypi.org/simple .
#     docker run --rm -v "$PWD:/results" fairseq-deep demo --out demo-run
#
# PyTorch's wheel on PyPI has CUDA in itself, so both are built on the same base.
FROM python:3.12-slim-bookworm AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/fairseq-deep
ENV PATH=/opt/fairseq-deep/bin:$PATH
WORKDIR /source
COPY constraints.txt ./
# fairseq is compiled against the PyTorch that is there, so PyTorch comes first.
RUN pip install --index-url "$TORCH_INDEX" --extra-index-url https://pypi.org/simple -c constraints.txt torch \
    && pip install -c constraints.txt numpy cython setuptools wheel \
    && pip install -c constraints.txt --no-build-isolation fairseq-fixed==0.12.3.1
COPY . .
RUN pip install -c constraints.txt '.[plots,export]'

FROM python:3.12-slim-bookworm
COPY --from=build /opt/fairseq-deep /opt/fairseq-deep
ENV PATH=/opt/fairseq-deep/bin:$PATH
WORKDIR /results
ENTRYPOINT ["fairseq-deep"]
CMD ["--help"]
