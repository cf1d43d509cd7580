# Every target builds what it needs: Python 3.11 or newer, git and make suffice.
#   make        lint, types, house rules, then all tests
#   make demo   the main job from end to end
#   make serve  the service with an example in it, at 127.0.0.1:8300
#   make docs   the site of the documents, into build/docs
#   make attack random problems against an oracle, ARGS="--minutes 10 --seed 1"
#   make dist   what a release consists of, into dist
#   make lock   refresh the pinned development environment
# PYTHON=python3.12 chooses the interpreter; ARGS="..." is passed on to demo, serve, test, bench.

VENV := .venv
BIN := $(VENV)/bin
PACKAGES := $(VENV)/packages.stamp
READY := $(VENV)/ready.stamp
LOCKER := .venv-lock
DEMO := .venv-demo
FIDES := .venv-fides
GPU := .venv-gpu
DOCS := .venv-docs
LOWEST := .venv-lowest
SBOM := .venv-sbom
CODE := $(wildcard src tests benchmarks examples)

# The newest interpreter that really starts: a name on the path may be an empty shim.
probe = $(shell python$(1) -c 'import sys; sys.version_info >= (3, 11) and print("python$(1)")' 2>/dev/null)
found = $(firstword $(foreach version,3.13 3.12 3.11 3,$(call probe,$(version))))
PYTHON ?= $(or $(found),$(error expunge needs Python 3.11 or newer; set PYTHON=))

# Tests run side by side and timings must compare: one BLAS thread for each process.
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1

# Not abspath of a wildcard's words: the folder's name may have spaces.
EXPUNGE_DATA ?= $(if $(wildcard ../shared/data),$(CURDIR)/../shared/data)
ifneq ($(EXPUNGE_DATA),)
export EXPUNGE_DATA
endif

.DEFAULT_GOAL := all
.PHONY: all demo serve test check bench attack crash fides gpu docs lowest dist sbom fmt lock clean
.DELETE_ON_ERROR:

all: check test

# In an environment of its own: a first look need not wait for what developers need.
demo: $(DEMO)/packages.stamp
	$(DEMO)/bin/python -c 'import pathlib, sysconfig; path = sysconfig.get_path("purelib"); \
	    pathlib.Path(path, "expunge.pth").write_text(str(pathlib.Path("src").resolve()))'
	$(DEMO)/bin/python -m expunge demo $(ARGS)

serve: $(READY)
	$(BIN)/expunge serve --demo demo-service $(ARGS)

test: $(READY)
	$(BIN)/python -m pytest -n 2 $(ARGS)

check: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy $(CODE)
	$(BIN)/python -m pytest -q tests/test_house.py

bench: $(READY)
	$(BIN)/python -m benchmarks $(ARGS)

# Draws problems and requests at random, and judges every answer by an oracle.
attack: $(READY)
	$(BIN)/python -m tests.attack $(ARGS)

# Strikes a registry in every way that we know of, and kills requests at many more calls
# to the system than the tests by themselves; takes half an hour on two cores.
KILLED := $(patsubst %,tests/test_%.py,crash killed_rights restore rebuild \
    lake_restore lake_rewrite expiry)
crash: $(READY)
	$(BIN)/python -m tests.crash --jobs 2 --kills 1050 --server-kills 100 \
	    --power-losses 200 --lost-locks 400 --damaged-journals 300 \
	    --full-disks 150 --restores 150 --changed-windows 200 $(ARGS)
	EXPUNGE_THOROUGH=1 $(BIN)/python -m pytest -q -n 2 $(KILLED) -k "complains or killed \
	    or answered_once or stated_once"

# Has fides itself check the connector and use it; it needs an environment of its own.
fides: $(READY) $(FIDES)/ready.stamp
	EXPUNGE_FIDES_PYTHON="$$PWD/$(FIDES)/bin/python" \
	    $(BIN)/python -m pytest -q tests/test_fides.py $(ARGS)

$(FIDES)/ready.stamp:
	$(PYTHON) -m venv --clear $(FIDES)
	$(FIDES)/bin/python -m pip install --quiet ethyca-fides==2.78.2
	touch $@

# Rows on a device of torch, which is larger than all that the other tests need: it gets
# an environment of its own, which sees the packages of the first one.
ATTACK := tests/test_attack.py::TestPromises::test_hold_under_attack
DEVICE_ATTACKS := "$(ATTACK)[device-0]" "$(ATTACK)[device-1]"
gpu: $(GPU)/ready.stamp
	EXPUNGE_REQUIRE_TORCH=1 $(GPU)/bin/python -m pytest -q \
	    tests/test_gpu.py tests/test_engines.py $(DEVICE_ATTACKS) $(ARGS)

# An environment that sees the packages of the first one and gets others beside them.
define beside
	$(BIN)/python -m venv --clear $(1)
	$(BIN)/python -c 'import sysconfig; \
	    print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	    > "$$($(1)/bin/python -c \
	        'import sysconfig; print(sysconfig.get_path("purelib"))')/packages.pth"
endef

$(GPU)/ready.stamp: $(READY)
	$(call beside,$(GPU))
	$(GPU)/bin/python -m pip install --quiet torch==2.13.0 array-api-compat==1.16.0
	touch $@

# The site of the documents: every warning is an error, every example of the gallery
# runs, and then its links, its search and what its pages load are tested.
docs: $(DOCS)/ready.stamp
	$(DOCS)/bin/python -m sphinx -W --keep-going -q -d build/doctrees docs build/docs
	EXPUNGE_REQUIRE_SITE=1 $(BIN)/python -m pytest -q tests/test_site.py $(ARGS)

$(DOCS)/ready.stamp: $(READY) docs/requirements.txt
	$(call beside,$(DOCS))
	$(DOCS)/bin/python -m pip install --quiet --require-hashes -r docs/requirements.txt
	touch $@

# The least versions that pyproject.toml allows, with a part of the tests. What old
# versions warn about between themselves is not ours.
lowest: $(LOWEST)/ready.stamp
	PYTHONPATH=src $(LOWEST)/bin/python -m pytest -q -W ignore::DeprecationWarning \
	    $(patsubst %,tests/test_%.py,budget certificate commands files generalised ledger \
	    plots preprocessing registry service_requests shipping sklearn_names) $(ARGS)

$(LOWEST)/ready.stamp: pyproject.toml
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet uv
	$(LOWEST)/bin/uv pip compile --quiet --no-config --python $(LOWEST)/bin/python \
	    --resolution lowest-direct --extra files --extra tables --extra cli \
	    --extra registry --extra onnx --extra service --extra plots \
	    --output-file $(LOWEST)/lowest.txt pyproject.toml
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python \
	    --requirements $(LOWEST)/lowest.txt \
	    glum hypothesis jsonschema packaging pandas polars pytest pyyaml
	touch $@

# A wheel, and an archive of the source whose tests run where there is no repository;
# and what the image of the service has in it, as CycloneDX.
dist: $(READY) sbom
	$(BIN)/python -m build --no-isolation --outdir dist
	place=$$(mktemp -d) && trap 'rm -rf "$$place"' EXIT && \
	    tar --extract --file "$$(ls -t dist/*.tar.gz | head -n 1)" \
	        --directory "$$place" --strip-components 1 && \
	    python=$$PWD/$(BIN)/python && cd "$$place" && \
	    PYTHONPATH=src "$$python" -m pytest -q -p no:cacheprovider \
	        tests/test_house.py tests/test_budget.py tests/test_registry.py

sbom: $(SBOM)/ready.stamp
	mkdir -p dist
	$(SBOM)/bin/cyclonedx-py requirements --pyproject pyproject.toml \
	    --mc-type application --output-reproducible --output-file dist/sbom.cdx.json \
	    deploy/requirements.txt

$(SBOM)/ready.stamp:
	$(PYTHON) -m venv --clear $(SBOM)
	$(SBOM)/bin/python -m pip install --quiet cyclonedx-bom==7.5.0
	touch $@

# A service under load, kills, an enemy with a stopwatch, and nonsense; about an hour.
service-load: $(READY)
	$(BIN)/python -m tests.service_load load $(ARGS)
	$(BIN)/python -m tests.service_load kill --count 100 $(ARGS)
	$(BIN)/python -m tests.service_load kill --count 50 --store postgresql $(ARGS)
	$(BIN)/python -m tests.service_load fuzz $(ARGS)
	$(BIN)/python -m tests.service_load work $(ARGS)
	$(BIN)/python -m tests.service_load oracle --window 30 $(ARGS)

fmt: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf $(VENV) $(LOCKER) $(DEMO) $(FIDES) $(GPU) $(DOCS) $(LOWEST) $(SBOM) dist build docs/gallery docs/generated

$(PACKAGES): requirements-dev.txt
$(DEMO)/packages.stamp: requirements-demo.txt
# What is imported is compiled then; compiling all of it takes as long as installing it.
$(PACKAGES) $(DEMO)/packages.stamp:
	if command -v uv >/dev/null; then \
	    uv venv --quiet --clear --python $(PYTHON) $(@D) && \
	    uv pip install --python $(@D)/bin/python --require-hashes -r $<; \
	else \
	    $(PYTHON) -m venv --clear $(@D) && \
	    $(@D)/bin/python -m pip install --quiet --no-compile --require-hashes -r $<; \
	fi
	touch $@

$(READY): $(PACKAGES) pyproject.toml
	if command -v uv >/dev/null; then \
	    uv pip install --python $(BIN)/python --no-deps --no-build-isolation -e .; \
	else \
	    $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .; \
	fi
	touch $@

# One version of each package for every Python from 3.11 on, hashes but no addresses;
# the part of it that the image of the service has, with what builds a wheel; and what
# builds the site of the documents.
lock:
	$(PYTHON) -m venv --clear $(LOCKER)
	$(LOCKER)/bin/python -m pip install --quiet uv
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(LOCKER)/bin/uv pip compile --quiet --upgrade \
	    --no-config --universal --python-version 3.11 --fork-strategy fewest \
	    --generate-hashes --no-emit-index-url --no-emit-find-links \
	    --group dev --extra files --extra tables --extra cli --extra registry \
	    --extra onnx --extra service --extra plots --extra dask \
	    --output-file requirements-dev.txt pyproject.toml
	echo hatchling | UV_CUSTOM_COMPILE_COMMAND="make lock" $(LOCKER)/bin/uv pip compile \
	    --quiet --no-config --universal --python-version 3.11 --fork-strategy fewest \
	    --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate \
	    --extra service --extra cli --constraint requirements-dev.txt \
	    --output-file deploy/requirements.txt pyproject.toml -
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(LOCKER)/bin/uv pip compile \
	    --quiet --no-config --universal --python-version 3.11 --fork-strategy fewest \
	    --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate \
	    --group docs --constraint requirements-dev.txt \
	    --output-file docs/requirements.txt
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(LOCKER)/bin/uv pip compile \
	    --quiet --no-config --universal --python-version 3.11 --fork-strategy fewest \
	    --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate \
	    --extra cli --extra registry --extra files --extra plots \
	    --constraint requirements-dev.txt \
	    --output-file requirements-demo.txt pyproject.toml
