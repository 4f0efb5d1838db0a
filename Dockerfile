# An image of compatcheck: the one file on a Python. `docker build -t compatcheck .`, then
# `docker save IMAGE | docker run --rm -i compatcheck image -`, or in another build `COPY --from=compatcheck /compatcheck.pyz /tmp/`.
FROM python:3.13-slim AS build
WORKDIR /src
COPY . .
RUN python -m venv /builder && /builder/bin/python -m pip install --quiet 'hatchling>=1.27' 'PyYAML>=5.1' 'packaging>=21.0'
RUN /builder/bin/python -m hatchling build --target wheel --directory /dist
RUN /builder/bin/python build_zipapp.py /dist/*.whl /dist/compatcheck.pyz

FROM python:3.13-slim
COPY --from=build /dist/compatcheck.pyz /compatcheck.pyz
USER 65534
WORKDIR /work
ENTRYPOINT ["python", "/compatcheck.pyz"]
