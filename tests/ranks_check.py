#!/usr/bin/env python3
"""Kills a simulation on MPI ranks at random moments and checks what its store and its restarts are worth.

Usage: ranks_check.py PROGRAM TREERING KILLS SECONDS MPIRUN...

Stories of two kills each: a new run on 4 or 8 ranks is killed with SIGKILL (all ranks, or one), so is the run that goes
on from it, and a third one runs to the end. The state of a step is the same bit for bit on any number of ranks, so every
restored state and every end is compared with that of an undisturbed run. Half of the restarts are on the same number of
ranks. Kills are aimed at the phase that was hit least so far. Then a rank kills itself at named points of Treering's
own code (crates/treering/src/points.rs; PROGRAM is built with treering's feature `testing`), at every point that this
program reaches if there are as many kills, and the run goes on to the same end. The last line is JSON.
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

STEPS, ENTRY = 40, 32
SETTINGS = ["--particles", "8", "--mesh", "24", "--steps", str(STEPS), "--every", "1", "--wait", "3"]
PHASES = ["open", "restore", "step", "checkpoint", "durable", "finish"]
PATIENCE = 60
# Points that this program does not reach: it has too few groups, it does not prune, and its survivors end.
ELSEWHERE = {"branch-published", "entries-removed", "packs-removed", "going-on"}
# Points that only a member of a group reaches, and not its leader.
OF_MEMBERS = {"stage-handed-over"}
# Seconds that survivors of a kill have to end by themselves.
AFTER_KILL = 3


class Job:
    """One mpirun and its ranks; only these processes are ever killed."""

    newest = None

    def __init__(self, check, ranks, store, folder):
        self.ranks, self.folder = ranks, folder
        self.phases, self.states = folder / "phases", folder / "states"
        for path in (self.phases, self.states):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
        self.command = [*check.mpirun, "-n", str(ranks), check.program, *SETTINGS, "--store", str(store)]
        self.command += ["--phases", str(self.phases)]

    def start(self, keep_states, kill_at=None):
        Job.newest = self
        states = ["--states", str(self.states)] if keep_states else []
        # A file and not a pipe: a survivor may keep a pipe open.
        self.output = open(self.folder / "output", "w+")
        self.process = subprocess.Popen(
            self.command + states, stdout=self.output, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, **({"TREERING_KILL_AT": kill_at} if kill_at else {})},
        )

    def told(self):
        self.output.seek(0)
        return self.output.read()

    def board(self, rank):
        """The process of a rank and its phase, or nothing before it has begun."""
        try:
            text = (self.phases / str(rank)).read_text()
        except FileNotFoundError:
            return None
        pid = text[:ENTRY].strip("\0 ")
        return (int(pid), text[ENTRY:].strip()) if pid else None

    def boards(self):
        boards = [self.board(rank) for rank in range(self.ranks)]
        return boards if all(boards) else None

    def runs_to_the_end(self):
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            code = "no end"
        self.clean_up()
        if code != 0:
            raise SystemExit(f"{' '.join(self.command)} failed ({code}):\n{self.told()}")

    def kill_when(self, phase, everyone, dice):
        """Kills when a rank is in the phase; the phases of the killed ranks, or nothing if the job ended before."""
        until, least = time.monotonic() + PATIENCE, dice.randrange(12)
        victim, seen, last = dice.randrange(self.ranks), 0, None
        while time.monotonic() < until and self.process.poll() is None:
            board = self.board(victim)
            now = board[1] if board else None
            seen += now == phase and last != phase
            last = now
            # Later passages of a phase as well as the first; some phases have only one.
            if now == phase and (seen > least or phase in ("open", "restore", "finish")):
                break
            time.sleep(0.0002)
        boards = self.boards()
        if boards is None or self.process.poll() is not None:
            self.clean_up()
            return None
        victims = range(self.ranks) if everyone else [victim]
        for rank in victims:
            try:
                os.kill(boards[rank][0], signal.SIGKILL)
            except ProcessLookupError:
                pass
        hit = [self.board(rank)[1] for rank in victims]
        try:
            self.process.wait(AFTER_KILL)
        except subprocess.TimeoutExpired:
            pass
        self.clean_up()
        return hit

    def dies(self):
        """Waits until a rank has killed itself; whether it did."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self.process.poll() is None:
            boards = list(filter(None, (self.board(rank) for rank in range(self.ranks))))
            if len(boards) == self.ranks and not all(lives(pid) for pid, _ in boards):
                break
            time.sleep(0.002)
        try:
            code = self.process.wait(AFTER_KILL)
        except subprocess.TimeoutExpired:
            code = "survivors"
        self.clean_up()
        return code != 0

    def clean_up(self):
        """Ends what is left of the job."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for board in filter(None, (self.board(rank) for rank in range(self.ranks))):
            end_rank(board[0], self.command)


def lives(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return state not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def named_points(survives):
    """The names of the table in the sources. Where ranks do not survive each other there is nobody to leave a pack to."""
    table = pathlib.Path(__file__).parent.parent / "crates/treering/src/points.rs"
    names = re.findall(r'^    \(\s*"([a-z-]+)",\s*"', table.read_text(), re.MULTILINE)
    elsewhere = ELSEWHERE if survives else ELSEWHERE | {"pack-entrusted"}
    # Points of replicas and crews are hit by replicas_check.py.
    return [name for name in names if name not in elsewhere and not name.startswith(("crew-", "replicas-"))]


def end_rank(pid, command):
    """Ends a rank that has outlived its job. Its command line is looked at: the number may be another process's."""
    try:
        line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if command[-1].encode() in line:
            os.kill(pid, signal.SIGKILL)
            while pathlib.Path(f"/proc/{pid}").exists():
                time.sleep(0.001)
    except (FileNotFoundError, ProcessLookupError):
        pass


class Check:
    def __init__(self, program, treering, mpirun, folder):
        self.program, self.treering, self.mpirun = program, treering, mpirun
        self.folder, self.dice = folder, random.Random()
        self.hits = {phase: collections.Counter() for phase in PHASES}
        self.kills, self.half_visible, self.wrong = 0, 0, 0
        self.restarted_on = collections.Counter()
        self.points = collections.Counter()
        self.reference = {}

    def undisturbed(self):
        for ranks in (4, 8):
            job = Job(self, ranks, self.folder / "undisturbed" / str(ranks), self.folder / "job")
            job.start(keep_states=True)
            job.runs_to_the_end()
            for path in job.states.iterdir():
                step = path.name.split("-")[1]
                if self.reference.setdefault(step, path.read_bytes()) != path.read_bytes():
                    raise SystemExit(f"undisturbed runs on 4 and 8 ranks differ at step {step}")
        shutil.rmtree(self.folder / "undisturbed")

    def look(self, store):
        """Whatever is listed must be whole."""
        # A job that was killed at its beginning has left nothing, or a folder with nothing in it.
        if not store.exists() or not any(store.iterdir()):
            return
        verified = self.ask("verify", str(store))
        trouble = [] if verified["sound"] == verified["checkpoints"] else verified["findings"]
        # A run that was killed while it was opened for the first time is not there.
        runs = [run["name"] for run in self.ask("ls", str(store))["runs"]]
        listed = self.ask("ls", f"{store}#particles") if runs else {"checkpoints": [], "unreadable": []}
        trouble += listed["unreadable"]
        if len(listed["checkpoints"]) > verified["checkpoints"]:
            trouble.append(f"{len(listed['checkpoints'])} checkpoints are listed, {verified['checkpoints']} verified")
        trouble += verified["findings"]
        if trouble:
            self.half_visible += 1
            print(f"NOT SOUND: {trouble}", flush=True)

    def ask(self, command, place):
        """The answer of the command `treering`; findings are in it, so its exit code does not matter."""
        done = subprocess.run([self.treering, command, "--json", place], capture_output=True, text=True)
        if not done.stdout:
            raise SystemExit(f"treering {command} {place}: {done.stderr}")
        return json.loads(done.stdout)

    def compare(self, job):
        # Files that were being written when a rank was killed have another name.
        for path in (path for path in job.states.iterdir() if ".new" not in path.name):
            state, expected = path.read_bytes(), self.reference[path.name.split("-")[1]]
            if state != expected:
                self.wrong += 1
                print(f"DIFFERS: {path.name} on {job.ranks} ranks", flush=True)

    def target(self, first):
        """The phase that was hit least; a new run has nothing to restore."""
        phases = [phase for phase in PHASES if not (first and phase == "restore")]
        return min(phases, key=lambda phase: (sum(self.hits[phase].values()), self.dice.random()))

    def kill_one(self, ranks, store, first):
        everyone, phase = self.kills % 2 == 0, self.target(first)
        job = Job(self, ranks, store, self.folder / "job")
        # The state that a killed run restores is compared, too.
        job.start(keep_states=self.dice.random() < 0.5)
        hit = job.kill_when(phase, everyone, self.dice)
        self.compare(job)
        if hit is None:
            return
        self.kills += 1
        for phase in set(hit) & set(PHASES):
            self.hits[phase]["all" if everyone else "one"] += 1
        self.look(store)

    def story(self, number):
        begun = 4 if number % 2 == 0 else 8
        store = self.folder / "store"
        shutil.rmtree(store, ignore_errors=True)
        self.kill_one(begun, store, first=True)
        again = begun if number % 4 < 2 else self.dice.choice([1, 2, 3, 6])
        self.restarted_on[again] += 1
        self.kill_one(again, store, first=False)
        end = begun if number % 4 >= 2 else self.dice.choice([1, 2, 3, 6])
        self.restarted_on[end] += 1
        job = Job(self, end, store, self.folder / "job")
        job.start(keep_states=True)
        job.runs_to_the_end()
        if not (job.states / f"end-{STEPS}").exists():
            raise SystemExit(f"no end state:\n{job.told()}")
        self.compare(job)
        self.look(store)

    def point(self, name, hit):
        """A rank kills itself at a point, the job is started again, and is killed there once more; a third one ends."""
        store, victim = self.folder / "store", 1 if name in OF_MEMBERS else 0
        shutil.rmtree(store, ignore_errors=True)
        for again in range(2):
            job = Job(self, 4, store, self.folder / "job")
            # Opening has its points once in a job.
            at = hit if again == 0 and name not in ("seated", "ticket-handed-out") else 0
            at = 0 if name.startswith(("opening-", "leftovers-")) else at
            job.start(keep_states=False, kill_at=f"{name}:{victim}:{at}")
            self.points[name] += job.dies()
            self.look(store)
        job = Job(self, self.dice.choice([3, 4]), store, self.folder / "job")
        job.start(keep_states=True)
        job.runs_to_the_end()
        self.compare(job)
        self.look(store)

    def all_points(self, most, until):
        names = named_points("ulfm" in self.mpirun)
        # A short form takes a few of them, others every time.
        chosen = names if most >= len(names) else self.dice.sample(names, 2)
        self.points.update({name: 0 for name in chosen})
        for name in chosen:
            # The few of a short form are all tried, however slow the machine is.
            if len(chosen) < len(names) or time.monotonic() < until:
                self.point(name, self.dice.randrange(6))

    def run(self, kills, seconds):
        self.undisturbed()
        until, number = time.monotonic() + seconds, 0
        while self.kills < kills and time.monotonic() < until:
            before = (self.wrong, self.half_visible)
            self.story(number)
            number += 1
            if (self.wrong, self.half_visible) != before:
                kept = pathlib.Path(tempfile.mkdtemp(prefix="treering-ranks-failed-"))
                shutil.copytree(self.folder, kept, dirs_exist_ok=True)
                print(f"story {number} failed; its store is kept in {kept}", flush=True)
        self.all_points(kills, time.monotonic() + seconds)
        self.tell(number)

    def tell(self, stories):
        print(f"{'phase':<12}{'all ranks':>10}{'one rank':>10}")
        for phase, hits in self.hits.items():
            print(f"{phase:<12}{hits['all']:>10}{hits['one']:>10}")
        missed = [phase for phase, hits in self.hits.items() if not hits]
        print(f"{stories} stories, {len(missed)} phases not hit {' '.join(missed)}".rstrip())
        for name, hits in self.points.items():
            print(f"{name:<22}{hits:>4}")
        not_reached = [name for name, hits in self.points.items() if not hits]
        identical = self.wrong == 0
        restarted_on = {str(ranks): count for ranks, count in sorted(self.restarted_on.items())}
        print(json.dumps({
            "kills": self.kills, "bit_identical": identical, "half_visible": self.half_visible,
            "restarted_on": restarted_on, "points": dict(self.points),
        }))
        # A short form has too few kills for every phase.
        if not identical or self.half_visible or not_reached or (missed and self.kills >= 2 * len(PHASES)):
            raise SystemExit(1)


def main():
    program, treering, kills, seconds, *mpirun = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="treering-ranks-") as folder:
        check = Check(os.path.abspath(program), os.path.abspath(treering), mpirun, pathlib.Path(folder))
        try:
            check.run(int(kills), float(seconds))
        finally:
            if Job.newest:
                Job.newest.clean_up()


if __name__ == "__main__":
    main()
