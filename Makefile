PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.mfdl-checkout

ifneq ($(origin NAME),command line)
NAME :=# some systems have a variable of this name
endif

.PHONY: help setup hooks demo tour check test chromium nightly versions export chapter refresh contents readme docs report figures benchmarks lint

help:
	@echo "make demo       set up, then tell the whole story on the Florentine families graph (table and figure)"
	@echo "make tour       set up, then open the book in one hour in JupyterLab"
	@echo "make check      set up, then check what has changed since the last commit, or since BASE=main (under two minutes)"
	@echo "make test       set up, then run every chapter and every test once (about twenty-five minutes on two cores); with Chromium, if it is there"
	@echo "make nightly    set up, with Chromium, then everything: notebooks in JupyterLab, the site, slow cells, campaigns, benchmarks in small (ninety minutes)"
	@echo "make versions   run the tests of accounts, noise and protocols with the newest and the lowest versions of all that is needed"
	@echo "make lint       set up, then run ruff, and name places that a maintainer may want to look at (seconds)"
	@echo "make export     write mfdl/ from the notebooks"
	@echo "make chapter    begin a new chapter: NAME=noise/methods/price TITLE='...', perhaps QUESTION='...?' and EXPORT=yes"
	@echo "make refresh    export, run every notebook again, in place, and clean it; or one of them: NAME=protocol/methods/graphs"
	@echo "make hooks      set up, then check what is quick to check before every commit"
	@echo "make contents   write the tables of notebooks in nbs/index.ipynb and nbs/where.ipynb, the times in docs/course.md, then the README"
	@echo "make readme     write README.md from the cells of nbs/index.ipynb that are tagged for it"
	@echo "make docs       set up, then build the site of the book: _docs/index.html, which needs no network"
	@echo "make report     set up, then write the technical report, a PDF: _report/report.pdf (needs pandoc and LaTeX)"
	@echo "make figures    run every experiment again, at full size (more than six hours; can be stopped, and goes on)"
	@echo "make benchmarks measure time and memory against other routes and peers (about an hour; installs jax-privacy)"
	@echo "PIP_ARGS='...'  given to pip when setting up, such as the --extra-index-url of PyTorch's builds without CUDA"

# In a terminal pip shows how far each download is, and how long the rest will take.
LOUD = $$(test -t 1 || echo -q)

# The stamp holds the path of the checkout that is installed, so that a virtual environment shared by two checkouts is noticed.
setup:
	@if ! { test -x $(BIN)/mfdl && grep -qsxF '$(CURDIR)' $(STAMP) && test ! pyproject.toml -nt $(STAMP) -a ! constraints.txt -nt $(STAMP); }; then \
	  $(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("mfdl needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")' && \
	  { test -x $(BIN)/python || { echo "creating .venv"; $(PYTHON) -m venv .venv; }; } && \
	  echo "installing mfdl and what it needs into .venv: $$(grep -c == constraints.txt) packages, a few minutes the first time$(if $(PIP_ARGS),, (on Linux PyTorch brings CUDA: some gigabytes; PIP_ARGS, in make help, avoids them))" && \
	  $(BIN)/python -m pip install -q --disable-pip-version-check 'pip>=25.1,<27' && \
	  $(BIN)/python -m pip install $(LOUD) --disable-pip-version-check $(PIP_ARGS) -c constraints.txt -e '.[train,agree,nvflare,explore,sdp,dask,parquet,fediverse,accountants]' --group dev && \
	  echo '$(CURDIR)' > $(STAMP); \
	fi

hooks: setup
	@$(BIN)/pre-commit install

demo: setup
	@echo "telling the story (a few minutes)"
	@$(BIN)/mfdl reproduce story

tour: setup
	@$(BIN)/jupyter lab nbs/tutorials/tour.ipynb

check test nightly: export OMP_NUM_THREADS = 1
check: setup
	@$(BIN)/ruff check -q .
	@$(BIN)/python tools/check.py $(BASE)

test: setup
	@$(BIN)/ruff check .
	@$(BIN)/pytest -n auto --dist worksteal --durations=20

# Chromium is taken from the path or from MFDL_CHROMIUM; where it is missing, root gets it on Debian.
chromium:
	@if test -n "$$MFDL_CHROMIUM"; then set -- "$$MFDL_CHROMIUM"; else set -- chromium chromium-browser google-chrome; fi; \
	for name; do ! command -v "$$name" >/dev/null || exit 0; done; \
	if test -z "$$MFDL_CHROMIUM" -a "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
	  echo "installing chromium" && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium >/dev/null && exit 0; \
	fi; \
	echo "no Chromium$${MFDL_CHROMIUM:+ at MFDL_CHROMIUM=$$MFDL_CHROMIUM}: install it (on Debian: apt-get install chromium), or set MFDL_CHROMIUM to the path of one" >&2; exit 1

nightly: export MFDL_CASES ?= 10000
nightly: setup chromium versions
	@$(BIN)/ruff check .
	@$(BIN)/pytest -n auto --dist worksteal --durations=20 --browser -m "not alone"
	@$(BIN)/pytest --browser -m alone

versions: setup
	@$(BIN)/python tools/versions.py

lint: setup
	@$(BIN)/python tools/lint.py

export: setup
	@$(BIN)/nbdev_export

chapter: setup
	@$(BIN)/python tools/chapter.py "$$NAME" "$$TITLE" "$$QUESTION" "$$EXPORT"

NOTEBOOKS = $(if $(NAME),nbs/$(NAME).ipynb,$(filter-out nbs/app/%,$(wildcard nbs/*.ipynb nbs/*/*.ipynb nbs/*/methods/*.ipynb nbs/projects/solutions/*.ipynb)))
refresh: setup
	@test -z "$$NAME" -o -f "nbs/$$NAME.ipynb" || $(BIN)/python tools/near.py "$$NAME"
	@$(BIN)/nbdev_export
	@$(BIN)/jupyter nbconvert --log-level=WARN --to notebook --execute --inplace $(NOTEBOOKS)
	@$(BIN)/nbdev_clean --fname nbs

contents: setup
	@$(BIN)/python tools/contents.py && $(BIN)/python tools/course.py
	@$(MAKE) --no-print-directory readme

readme: setup
	@$(BIN)/python tools/readme.py

docs: setup
	@echo "building the site (a few minutes)"
	@$(BIN)/python docs/build.py

report: setup
	@$(BIN)/python tools/report.py

figures: setup
	@$(BIN)/mfdl reproduce all && $(BIN)/python tools/show.py && $(BIN)/nbdev_clean --fname nbs/experiments

benchmarks: setup
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[train,notebooks,sdp]' --group benchmarks
	@$(BIN)/python benchmarks/streaming.py && $(BIN)/python benchmarks/mafalda.py && $(BIN)/python benchmarks/covariance.py && $(BIN)/python benchmarks/pairwise.py && $(BIN)/python benchmarks/training.py && $(BIN)/python benchmarks/space_time.py && $(BIN)/python benchmarks/network.py && $(BIN)/python benchmarks/randomness.py && $(BIN)/python benchmarks/reactions.py && $(BIN)/python benchmarks/rounding.py && $(BIN)/python benchmarks/large.py && $(BIN)/python benchmarks/lean.py && $(BIN)/python benchmarks/buffers.py && $(BIN)/python benchmarks/estimates.py && $(BIN)/python benchmarks/chance.py
