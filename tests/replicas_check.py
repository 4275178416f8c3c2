#!/usr/bin/env python3
"""Kills ranks of programs that keep replicas in memory, and checks that the survivors end with the right answer.

Usage: replicas_check.py PROGRAMS KILLS SECONDS MPIRUN...

PROGRAMS is the folder of kmeans, pagerank and particles-ranks, built with treering's feature `testing`. Each run is one
program on 4 or 8 ranks of Open MPI with ULFM. One of 4 ranks, two of 8, or rank 0 are killed with SIGKILL from outside at
a random moment. In half of the runs another rank kills itself at a named point of the recovery that follows
(crates/treering/src/points.rs); such a kill counts only if the point was reached. Particles also run with spares.

A run is right if it ends by itself with the digest of an undisturbed run, on every rank that nobody killed, and if every
state that was recovered on the way has the digest that an undisturbed run had at that step. Digests cover the whole global state in the order of ids, so each
particle is there once. The last runs are the case of loss: both holders of some blocks are killed at once; the run must
name what is lost, go back to a checkpoint in the store, and end right. The last line is JSON. It ends with 1 if a run was
not right, if the time was over before all kills were made, or if a program has named no loss. Points that were never hit
are listed.
"""

import collections
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from ranks_check import end_rank, lives

# Seconds that a run may take from its start to its end; undisturbed ones take a few.
PATIENCE = 120
# Programs and their arguments.
PROGRAMS = {
    "kmeans": ["kmeans", "--points", "60000", "--iterations", "200"],
    "pagerank": ["pagerank", "--make", "delaunay", "--vertices", "40000", "--iterations", "250",
                 "--damping", "0.99", "--tolerance", "0"],
    "particles": ["particles-ranks", "--particles", "10", "--mesh", "24", "--steps", "120"],
}
REPLICATE_EVERY, CHECKPOINT_EVERY = 3, 30
# Ranks, copies and the number of ranks that are killed; "rank 0" is always the first one.
CASES = {"one of 4": (4, 2, 1), "two of 8": (8, 3, 2), "rank 0": (4, 2, 1)}
# Points that a run reaches when it is opened, too: those of the recovery are the second ones.
AT_OPENING_TOO = {
    "crew-formed", "crew-opened", "crew-restored", "crew-resumed", "opening-committed", "opening-announced",
    "ticket-handed-out", "seated",
}
# Points that one rank reaches for all, the first of those that are left.
OF_THE_FIRST = {"opening-committed", "opening-announced"}


class Job:
    """One mpirun and its ranks; only these processes are ever killed."""

    newest = None

    def __init__(self, command, folder, kill_at=None):
        Job.newest = self
        self.command = command
        # A file and not a pipe: a survivor may keep a pipe open.
        self.output = open(folder / "output", "w+")
        environment = {**os.environ, **({"TREERING_KILL_AT": kill_at} if kill_at else {})}
        self.begun = time.monotonic()
        self.process = subprocess.Popen(
            command, stdout=self.output, stderr=subprocess.STDOUT, start_new_session=True, env=environment
        )
        self.pids = {}

    def told(self):
        return pathlib.Path(self.output.name).read_text(errors="replace")

    def runs(self):
        return self.process.poll() is None and time.monotonic() < self.begun + PATIENCE

    def wait_for_ranks(self, ranks):
        """Waits until the program says that all ranks are there; whether it does."""
        while self.runs() and not re.search(r"^begun ", self.told(), re.MULTILINE):
            time.sleep(0.002)
        self.pids = ranks_below(self.process.pid)
        return self.runs() and len(self.pids) == ranks

    def kill(self, ranks):
        for rank in ranks:
            try:
                os.kill(self.pids[rank], signal.SIGKILL)
            except ProcessLookupError:
                pass

    def ends(self):
        """Waits for the end; whether it came by itself."""
        while self.runs():
            time.sleep(0.005)
        by_itself = self.process.poll() is not None
        self.clean_up()
        return by_itself

    def clean_up(self):
        """Ends what is left of the job."""
        self.pids = {**self.pids, **ranks_below(self.process.pid)}
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in self.pids.values():
            if lives(pid):
                end_rank(pid, self.command)
        self.output.close()


def ranks_below(pid):
    """The ranks among the descendants of a process, and their processes."""
    found, below = {}, [pid]
    while below:
        pid = below.pop()
        try:
            for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
                below += map(int, (thread / "children").read_text().split())
            environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
            rank = re.search(rb"(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)\0", environment)
            if rank:
                found[int(rank[1])] = pid
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            pass
    return found


def recovery_points():
    """Named points of recovery, of the table in the sources."""
    table = pathlib.Path(__file__).parent.parent / "crates/treering/src/points.rs"
    names = re.findall(r'^    \(\s*"([a-z-]+)",\s*"', table.read_text(), re.MULTILINE)
    # States are kept at every few steps, so that point is one of recovery by chance only.
    starts = ("crew-", "replicas-")
    of_recovery = [name for name in names if name.startswith(starts) and name != "replicas-kept"]
    return of_recovery + [name for name in names if name == "going-on" or name in AT_OPENING_TOO - {*of_recovery}]


class Told:
    """The lines of a program's output that say something about its state; see apps/surviving."""

    def __init__(self, text):
        lines = [line.split() for line in text.splitlines()]
        self.saved = {int(line[1]): line[2] for line in lines if line[:1] == ["saved"] and len(line) == 3}
        # Step, place and digest.
        self.resumed = [tuple(line[1:]) for line in lines if line[:1] == ["resumed"] and len(line) == 4]
        self.notes = [" ".join(line[1:]) for line in lines if line[:1] == ["note:"]]
        # Of the ranks that have come to the end, their steps and digests.
        ended = {int(line[1]): tuple(line[2:]) for line in lines if line[:1] == ["end"]}
        self.ranks = set(ended)
        self.panics = re.findall(r"^.*panicked at .*$", text, re.MULTILINE)
        self.ends = {end for end in ended.values() if end != ("spare",)}
        inertia = re.search(r"^inertia ([0-9.e+-]+)$", text, re.MULTILINE)
        self.inertia = float(inertia[1]) if inertia else None


class Check:
    def __init__(self, programs, mpirun, folder):
        self.programs, self.mpirun, self.folder = pathlib.Path(programs).resolve(), mpirun, folder
        self.dice = random.Random()
        self.reference, self.seconds = {}, {}
        self.runs, self.right, self.hangs, self.kills = 0, 0, 0, 0
        self.table = collections.Counter()
        self.points = collections.Counter({name: 0 for name in recovery_points()})
        # Where recovered states came from, and whether a loss of each program was named.
        self.places, self.losses = collections.Counter(), {}

    def command(self, program, ranks, copies, spares=0, checkpoints=0):
        store = self.folder / "store"
        shutil.rmtree(store, ignore_errors=True)
        return [
            *self.mpirun, "-n", str(ranks + spares), str(self.programs / PROGRAMS[program][0]), *PROGRAMS[program][1:],
            "--replicas", str(copies), "--spares", str(spares), "--replicate-every", str(REPLICATE_EVERY),
            "--every", str(checkpoints), "--digests", "--store", str(store),
        ]

    def undisturbed(self):
        """Digests of all saved steps and of the end, the same on 3, 4 and 8 ranks; and the time a run takes."""
        for program in PROGRAMS:
            for ranks in (3, 4, 8):
                job = Job(self.command(program, ranks, 2), self.folder)
                job.wait_for_ranks(ranks)
                begun = time.monotonic()
                by_itself = job.ends()
                self.seconds[program, ranks] = time.monotonic() - begun
                told = Told(job.told())
                if not by_itself or len(told.ends) != 1 or len(told.ranks) != ranks or not told.saved:
                    raise SystemExit(f"{' '.join(job.command)} failed:\n{job.told()}")
                known = self.reference.setdefault(program, told)
                if (known.ends, known.saved, known.resumed) != (told.ends, told.saved, told.resumed):
                    raise SystemExit(f"undisturbed runs of {program} on 3 and {ranks} ranks differ")

    def judge(self, program, told, survivors):
        """The fault of a run that has ended by itself; `survivors` are the ranks that were not killed."""
        known, wrong = self.reference[program], list(told.panics)
        if missing := survivors - told.ranks:
            wrong.append(f"nobody has killed {sorted(missing)}, which did not come to the end")
        if told.ends != known.ends:
            wrong.append(f"ended with {told.ends}, not {known.ends}")
        states = {**known.saved, 0: known.resumed[0][2]}
        self.places.update(place for _, place, _ in told.resumed[1:])
        for step, place, digest in told.resumed:
            if states.get(int(step)) != digest:
                wrong.append(f"step {step} came back from {place} as {digest}, not {states.get(int(step))}")
        wrong += [f"step {step} was {digest}" for step, digest in told.saved.items() if known.saved.get(step) != digest]
        # The rank that prints it may be killed when all have come to the end; its bits are in the digest, too.
        if told.inertia and abs(told.inertia - known.inertia) > 1e-9 * known.inertia:
            wrong.append(f"inertia {told.inertia}, not {known.inertia}")
        return wrong

    def play(self, program, case, spares, second):
        """One run; `second` is the point at which another rank dies, or nothing."""
        ranks, copies, victims = CASES[case]
        everybody = list(range(ranks))
        killed = [0] if case == "rank 0" else self.dice.sample(everybody[1:], victims)
        left = [rank for rank in everybody if rank not in killed]
        kill_at, last = None, None
        if second:
            last = left[0] if second in OF_THE_FIRST else self.dice.choice(left)
            kill_at = f"{second}:{last}:{int(second in AT_OPENING_TOO)}"
        # The second rank that dies takes further copies along.
        job = Job(self.command(program, ranks, copies + bool(second), spares), self.folder, kill_at)
        if not job.wait_for_ranks(ranks + spares):
            job.clean_up()
            raise SystemExit(f"{' '.join(job.command)} did not begin:\n{job.told()}")
        time.sleep(self.dice.random() * 0.9 * self.seconds[program, ranks])
        if not job.runs():
            job.ends()
            return
        # Two of them at once, or one after the other.
        at_once = self.dice.random() < 0.5
        job.kill(killed[:1])
        if len(killed) > 1:
            time.sleep(0 if at_once else self.dice.random() * 0.3)
            job.kill(killed[1:])
        by_itself = job.ends()
        told = Told(job.told())
        # The signal, or the point, may have come too late: whoever should die and has come to the end has not died.
        dead = set(range(ranks + spares)) - told.ranks
        if by_itself and not dead:
            return
        survivors = set(range(ranks + spares)) - {*killed, last}
        wrong = self.judge(program, told, survivors) if by_itself else ["it hangs"]
        hit = bool(second) and by_itself and last in dead
        self.count(program, case, spares, by_itself, wrong, len(dead & {*killed, last}))
        if hit:
            self.points[second] += 1
        if wrong:
            self.keep(job, f"{program}, {case}, spares {spares}, {killed} killed, {kill_at or 'no point'}", wrong)

    def lose(self, program):
        """Both holders of some blocks are killed at once; two copies are four ranks apart, and not every pair has some."""
        return any(self.lose_pair(program, (rank, rank + 4)) for rank in self.dice.sample(range(4), 4))

    def lose_pair(self, program, pair):
        """Whether something was lost, and the run went back to a checkpoint."""
        job = Job(self.command(program, 8, 2, checkpoints=CHECKPOINT_EVERY), self.folder)
        if not job.wait_for_ranks(8):
            job.clean_up()
            raise SystemExit(f"{' '.join(job.command)} did not begin:\n{job.told()}")
        # There is a checkpoint, and newer states in memory.
        while job.runs() and f"saved {2 * CHECKPOINT_EVERY + REPLICATE_EVERY} " not in job.told():
            time.sleep(0.002)
        job.kill(pair)
        by_itself = job.ends()
        told = Told(job.told())
        wrong = self.judge(program, told, set(range(8)) - {*pair}) if by_itself else ["it hangs"]
        lost = any("are lost" in note for note in told.notes)
        back = any(place in ("node", "shared") for _, place, _ in told.resumed[1:])
        if by_itself and lost != back:
            wrong.append("lost states and a checkpoint that is restored go together")
        self.count(program, "loss", 0, by_itself, wrong, 2)
        if wrong:
            self.keep(job, f"{program}, loss, {pair} killed", wrong)
        return lost and back and not wrong

    def count(self, program, case, spares, by_itself, wrong, kills):
        self.runs += 1
        self.kills += kills
        self.hangs += not by_itself
        self.right += not wrong
        self.table[program, case, "spares" if spares else "", not wrong] += 1

    def keep(self, job, what, wrong):
        kept = pathlib.Path(tempfile.mkdtemp(prefix="treering-replicas-failed-"))
        shutil.copytree(self.folder, kept, dirs_exist_ok=True)
        print(f"WRONG: {what}: {'; '.join(wrong)}\n  {' '.join(job.command)}\n  output and store: {kept}", flush=True)

    def run(self, kills, seconds):
        self.undisturbed()
        until, number = time.monotonic() + seconds, 0
        programs, cases = list(PROGRAMS), list(CASES)
        while self.kills < kills and time.monotonic() < until:
            program, case = programs[number % 3], cases[number // 3 % 3]
            spares = self.dice.choice([0, 1, 2]) if program == "particles" else 0
            # In every other run, the point that was hit least.
            least = min(self.points, key=lambda name: (self.points[name], self.dice.random()))
            self.play(program, case, spares, least if number % 2 else None)
            number += 1
        self.losses = {program: time.monotonic() < until and self.lose(program) for program in programs}
        self.tell(kills)

    def tell(self, kills):
        print(f"{'program':<12}{'case':<12}{'':<10}{'right':>6}{'wrong':>6}")
        for program, case, spares in sorted({key[:3] for key in self.table}):
            right, wrong = (self.table[program, case, spares, well] for well in (True, False))
            print(f"{program:<12}{case:<12}{spares:<10}{right:>6}{wrong:>6}")
        print(f"{'point of recovery':<24}{'hits':>6}")
        for name, hits in self.points.items():
            print(f"{name:<24}{hits:>6}")
        missed = [name for name, hits in self.points.items() if not hits]
        print(f"points that were never hit: {', '.join(missed) or 'none'}")
        lost = [program for program, named in self.losses.items() if named]
        places = ", ".join(f"{place} {count}" for place, count in self.places.most_common())
        print(f"{self.kills} kills; states recovered from: {places}; losses named and survived: {', '.join(lost) or 'none'}")
        incomplete = [f"{self.kills} of {kills} kills"] * (self.kills < kills)
        incomplete += [f"no loss named by {program}" for program, named in self.losses.items() if not named]
        if incomplete:
            print(f"INCOMPLETE: {'; '.join(incomplete)}")
        print(json.dumps({"runs": self.runs, "right": self.right, "hangs": self.hangs}))
        if self.right < self.runs or self.hangs or incomplete:
            raise SystemExit(1)


def main():
    programs, kills, seconds, *mpirun = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="treering-replicas-") as folder:
        check = Check(programs, mpirun, pathlib.Path(folder))
        try:
            check.run(int(kills), float(seconds))
        finally:
            if Job.newest:
                Job.newest.clean_up()


if __name__ == "__main__":
    main()
