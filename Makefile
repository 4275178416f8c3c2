# make test      formatting, lints, all tests; installs what they need when it is missing
# make quick     the tests that matter while working, in two minutes
# make fuzz      every parser under libFuzzer, MINUTES each (needs a nightly toolchain)
# make kills     thousands of kills at random moments
# make ranks-check  KILLS (default: 100) kills of a simulation on 4 and 8 MPI ranks, and at every named point, and restarts
# make replicas-check  KILLS (default: 50) kills of ranks of k-means, PageRank and particles, which go on with replicas
# make big       arrays of 2.5 GiB in one rank and 4.1 GiB on two, through MPI; 2.5 GiB of one rank in the memory of three
# make watch-load  a program writes 32 files a second for a minute; the watching service is killed twice
# make backlog   a program on a store that is far slower than it, for a minute
# make model     PROGRAMS random programs over all features that keep state, against a plain map
# make campaign  the law of bounded hashing for PAIRS pairs of values for each type and bound
# make bench     all benchmarks; nothing else should run meanwhile
# make bench-replica  replicas in memory: submits, loads, recovery and remaking over MPI, messages of simulated ranks
# make bench-chunks  files in chunks that reach far, beside h5py and beside a chunk for each step
# make bench-ranks  what ranks cost: objects, bytes read, packs, a slow store, and the time for which they are blocked (MPI)
# make corpus    checkpoint files of real parallel programs, in target/corpus (some minutes)
# make restart   they are ingested and exported, and the programs continue from what was exported
# make peers     Treering beside other tools, on these files
# make book      the book in docs/, as pages in target/book; installs mdbook in target/ if it is missing

MINUTES ?= 30
KILLS ?= 5000
# Kills of ranks take seconds each, so there are fewer unless KILLS is given.
RANK_KILLS := $(if $(filter file,$(origin KILLS)),100,$(KILLS))
REPLICA_KILLS := $(if $(filter file,$(origin KILLS)),50,$(KILLS))
PAIRS ?= 100000000
PROGRAMS ?= 100000
VENV := target/venv
CORPUS := target/corpus
CORPUS_VENV := target/corpus-venv
SETS := molecules waves ocean
CARGO ?= cargo
# All crates, built as for the tests, so that nothing is built twice.
MPI := --features particles/mpi,orbits/mpi,kmeans/mpi
BUILD = $(CARGO) build --workspace --bins --examples $(MPI)
# Features of the library beyond the default ones.
comma := ,
empty :=
ALL_FEATURES := $(subst $(empty) ,$(comma),$(addprefix treering/,half ndarray num-complex testing tracing))
# The crates that a program compiles for treering without its default features, treering among them.
BARE_CRATES := 37
# The MPI that treering-mpi is built with.
export MPICC := $(CURDIR)/$(VENV)/bin/mpicc

.PHONY: test quick needs format lints bare tests mpi orca numpy files fuzz kills ranks-check replicas-check big watch-load backlog model \
	campaign bench bench-chunks bench-ranks bench-replica corpus restart peers book

# Missing tools are installed while the library without features is built, which needs nothing but Rust and a linker.
# The other MPIs come last, so that nothing is built again behind them.
test:
	@$(MAKE) --no-print-directory $(if $(shell command -v cc),-j2) needs bare
	@$(MAKE) --no-print-directory format lints tests orca numpy mpi
	@echo "all tests passed"

# Everything but what takes long: power cuts, damage in every byte, kills, watching, files of libraries, the demo.
quick:
	$(CARGO) test -p treering --lib
	$(CARGO) test -p treering --test it -- \
		--skip power_cut:: --skip damage:: --skip bounded:: --skip full_disk:: --skip more_than_four --skip two_thousand --skip a_rank_that_dies
	$(CARGO) test -p treering-cli --test it -- --skip kill:: --skip watch:: --skip the_demo

# As root, what is missing is installed; else it is named.
needs:
	@bash tests/needs.sh $(VENV)

format:
	$(CARGO) fmt --all --check

lints:
	$(CARGO) clippy --workspace --all-targets $(MPI) -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps -p treering -p treering-mpi --features $(ALL_FEATURES)

# A program that only saves and restores, with the library as it needs it. A crate more has a reason, and is counted here.
bare:
	@crates=$$($(CARGO) tree -p treering -e normal,build --no-default-features --prefix none | sed 's/ (.*//' | sort -u | wc -l); \
		[ $$crates -gt 1 ] && [ $$crates -le $(BARE_CRATES) ] || \
		{ echo "without default features, treering compiles $$crates crates; at most $(BARE_CRATES) are meant to be" >&2; exit 1; }
	RUSTFLAGS="-D warnings" $(CARGO) run --quiet --profile bare -p minimal

# Files of HDF5, netCDF and numpy are taken apart and come back byte for byte; pairs of them are compared.
tests: files
	TREERING_FILES=$(CURDIR)/target/files TREERING_FILE_PAIRS=$(CURDIR)/target/file-pairs \
		$(CARGO) test --workspace $(MPI) -- --include-ignored

# Ranks on the MPIs there are: Open MPI 5, Open MPI 4, MPICH.
mpi: needs
	bash tests/mpi.sh $(CURDIR)/$(VENV)

# The orbit counter against an independent tool.
orca: needs
	$(BUILD)
	$(VENV)/bin/python apps/orbits/tests/with_orca.py target/debug/orbits

# Comparison against numpy, on files that numpy wrote; exported arrays as h5py, numpy and zarr read them.
numpy: needs
	$(BUILD)
	$(VENV)/bin/python crates/treering-cli/tests/with_numpy.py target/debug/treering
	$(VENV)/bin/python crates/treering-cli/tests/with_exports.py target/debug/treering target/debug/examples/save_arrays

files: needs
	$(VENV)/bin/python crates/treering/tests/make_files.py target/files
	$(VENV)/bin/python crates/treering/tests/make_pairs.py target/file-pairs
	$(VENV)/bin/python crates/treering/tests/make_filtered.py target/files target/file-pairs

fuzz:
	bash fuzz/run.sh $(MINUTES)

kills:
	TREERING_KILLS=$(KILLS) $(CARGO) test --release -p treering-cli --test it kill::

# Bounded by an hour; ends with 1 if a state differs, a checkpoint is half visible or a phase was never hit.
ranks-check: needs
	$(BUILD) --release
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 $(VENV)/bin/python tests/ranks_check.py \
		target/release/particles-ranks target/release/treering $(RANK_KILLS) 3600 \
		$(VENV)/bin/mpirun --with-ft ulfm --oversubscribe --mca async_mpi_finalize 1

# Bounded by an hour; ends with 1 if a run does not end by itself with the right answer.
replicas-check: needs
	$(BUILD) --release
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 $(VENV)/bin/python tests/replicas_check.py \
		target/release $(REPLICA_KILLS) 3600 $(VENV)/bin/mpirun --with-ft ulfm --oversubscribe --mca async_mpi_finalize 1

big: needs
	$(BUILD) --release
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 bash tests/big.sh \
		target/release/examples/big $(VENV)/bin/mpirun --oversubscribe

watch-load:
	TREERING_WATCH_SETS=60 TREERING_WATCH_PACE=1000 TREERING_WATCH_VALUES=65536 \
		$(CARGO) test -p treering-cli --test it under_load -- --nocapture

backlog:
	TREERING_BACKLOG=1 $(CARGO) test --release -p treering --test it a_backlog -- --nocapture

model:
	TREERING_PROGRAMS=$(PROGRAMS) \
		$(CARGO) test --release --workspace $(MPI) --test it -- model:: random_crews --nocapture

campaign:
	TREERING_PAIRS=$(PAIRS) $(CARGO) test --release -p treering --test it law_of_the_cells -- --nocapture

bench:
	$(CARGO) build --release
	target/release/treering bench capture
	target/release/treering bench restore
	target/release/treering bench lineage
	target/release/treering bench tables
	target/release/treering bench compare --size 1GiB
	$(MAKE) bench-chunks
	$(MAKE) bench-ranks
	$(MAKE) bench-replica

# Nothing else should run meanwhile.
bench-chunks: needs
	$(CARGO) build --release
	$(VENV)/bin/python tests/bench_chunks.py target/release/treering --dir target

# With the sets of `make corpus`, if they are there. Takes 5 GiB of disk and of memory.
bench-ranks: needs
	$(BUILD) --release
	target/release/treering bench ranks $(wildcard $(SETS:%=$(CORPUS)/%))
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 bash tests/bench_ranks.sh \
		target/release/examples/blocked 512 $(VENV)/bin/mpirun --oversubscribe

# Nothing else should run meanwhile. Takes 3 GiB of memory.
bench-replica: needs
	$(BUILD) --release
	target/release/treering bench replica
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 python3 tests/bench_replica.py \
		target/release/examples/replica_bench target/release/kmeans \
		$(VENV)/bin/mpirun --oversubscribe --bind-to none --with-ft ulfm \
		--mca async_mpi_finalize 1

corpus:
	@bash apps/corpus/needs.sh $(CORPUS_VENV)
	@for set in $(SETS); do \
		[ -d $(CORPUS)/$$set/step-0011 ] || \
			bash apps/corpus/run.sh $(CORPUS_VENV) $$set $(CORPUS)/$$set || exit 1; \
	done

restart: corpus
	$(CARGO) build --release
	@for set in $(SETS); do \
		bash apps/corpus/check.sh $(CORPUS_VENV) target/release/treering $(CORPUS)/$$set || exit 1; \
	done

peers: corpus
	@bash apps/corpus/needs.sh $(CORPUS_VENV) peers
	$(CARGO) build --release
	@for set in $(SETS); do \
		$(CORPUS_VENV)/bin/python apps/corpus/peers.py $(CORPUS)/$$set \
			--treering target/release/treering || exit 1; \
	done

# The tests need no mdbook: they check links and run the examples.
MDBOOK_VERSION := 0.5.3
MDBOOK := $(or $(shell command -v mdbook),target/mdbook/bin/mdbook)
target/mdbook/bin/mdbook:
	$(CARGO) install mdbook --version $(MDBOOK_VERSION) --locked --no-default-features --features search --root target/mdbook

book: $(MDBOOK)
	$(MDBOOK) build docs
	@echo "open target/book/index.html"
