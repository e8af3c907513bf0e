# make demo in a container, or any other command of this project: see docs/elsewhere.md.
FROM python:3.11-slim AS tools
RUN apt-get update && apt-get install -y --no-install-recommends git make && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home reader && install -d -o reader -g reader /home/reader/mfdl
USER reader
WORKDIR /home/reader/mfdl

FROM tools
# Where pip looks beside its own index, for example for a build of PyTorch without CUDA.
ARG PIP_EXTRA_INDEX_URL
COPY --chown=reader:reader . .
RUN make setup
ENV PATH=/home/reader/mfdl/.venv/bin:$PATH
CMD ["make", "demo"]
