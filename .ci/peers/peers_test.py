#!/usr/bin/env python3
"""Tests of what needs neither a client nor an engine: figures, plan, table, and how each client's results are read.

    python3 -m unittest discover -s .ci/peers -p '*_test.py'

The results below are what the clients wrote here, shortened.
"""

import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import clients
import engine
import figures
import plan
import process
import table
import wrk
from clients import aiperf, guidellm, inference_perf, plimsoll, sglang, vllm


class Figures(unittest.TestCase):
    def test_percentiles_are_interpolated_between_ranks(self):
        self.assertEqual(figures.percentile([4, 1, 3, 2], 50), 2.5)
        self.assertEqual([figures.percentile([7], p) for p in (0, 50, 99)], [7, 7, 7])
        self.assertEqual(figures.percentile(range(101), 99), 99)
        with self.assertRaises(ValueError):
            figures.percentile([], 50)

    def test_equal_gaps_are_on_schedule_wherever_they_begin(self):
        off = figures.deviation([12_345 + n * 5_000_000 for n in range(100)], 200)
        self.assertEqual(off, figures.Deviation(0, 0, 0, 0))

    def test_one_that_is_late_does_not_move_the_schedule(self):
        arrivals = [n * 5_000_000 for n in range(101)]
        arrivals[0] += 4_000_000
        off = figures.deviation(arrivals, 200)
        self.assertEqual((off.p50, off.max), (0, 0.004))

    def test_a_client_that_falls_behind_drifts(self):
        # 180 a second where 200 were asked for: a tenth of the span late at the end.
        off = figures.deviation([round(n * 1e9 / 180) for n in range(1000)], 200)
        self.assertAlmostEqual(off.drift, 950 * (1 / 180 - 1 / 200), places=3)

    def test_order_of_arrivals_does_not_matter(self):
        arrivals = [0, 1_000_000, 2_500_000, 3_000_000]
        self.assertEqual(figures.deviation(arrivals, 1000), figures.deviation(arrivals[::-1], 1000))

    def test_the_rate_is_of_gaps(self):
        self.assertEqual(figures.rate_of([0, 500_000_000, 1_000_000_000]), 2)
        self.assertIsNone(figures.rate_of([5]))

    def test_two_sizes_split_fixed_from_marginal(self):
        found = figures.cost((100, 3.5), (1100, 8.5))
        self.assertAlmostEqual(found.marginal, 0.005)
        self.assertAlmostEqual(found.fixed, 3.0)
        with self.assertRaises(ValueError):
            figures.cost((100, 1), (100, 1))

    def test_a_spread_leaves_out_what_is_missing(self):
        self.assertEqual(figures.spread([3, None, 1, 2]), figures.Spread(2, 1, 3, 3))
        self.assertIsNone(figures.spread([None]))

    def test_what_a_client_adds_is_beyond_what_the_engine_took(self):
        arrivals = [engine.Arrival(n, n + 20_000_000, n + 20_000_000) for n in range(10)]
        p50, p99 = figures.added_ttft((0.0201, 0.025), arrivals)
        self.assertAlmostEqual(p50, 0.0001)
        self.assertAlmostEqual(p99, 0.005)


class Reading(unittest.TestCase):
    def test_vllm(self):
        text = json.dumps({"completed": 100, "failed": 0, "duration": 2.02, "median_ttft_ms": 22.09, "p99_ttft_ms": 29.14})
        self.assertEqual(vllm.read_results(text), clients.Reported(100, 0, 0.02209, 0.02914))

    def test_sglang_appends_a_line_a_run(self):
        last = {"backend": "vllm", "request_rate": 50.0, "completed": 100, "median_ttft_ms": 21.5, "p99_ttft_ms": 33.25}
        text = '{"completed": 7}\n%s\n' % json.dumps(last)
        self.assertEqual(sglang.read_results(text), clients.Reported(100, 0, 0.0215, 0.03325))

    def test_aiperf(self):
        found = {
            "request_count": {"unit": "requests", "avg": 200.0},
            "time_to_first_token": {"unit": "ms", "avg": 112.85, "p50": 86.5, "p99": 250.25},
            "error_summary": [],
        }
        self.assertEqual(aiperf.read_results(json.dumps(found)), clients.Reported(200, 0, 0.0865, 0.25025))
        found["error_request_count"] = {"unit": "requests", "avg": 3.0}
        self.assertEqual(aiperf.read_results(json.dumps(found)).failed, 3)

    def test_guidellm(self):
        metrics = {
            "request_totals": {"successful": 199, "errored": 1, "incomplete": 2, "total": 202},
            "time_to_first_token_ms": {"successful": {"percentiles": {"p50": 199.5, "p99": 272.25}}},
        }
        text = json.dumps({"benchmarks": [{"metrics": metrics}]})
        self.assertEqual(guidellm.read_results(text), clients.Reported(199, 3, 0.1995, 0.27225))

    def test_inference_perf(self):
        found = {
            "load_summary": {"count": 200},
            "successes": {"count": 200, "latency": {"time_to_first_token": {"median": 0.0217, "p99": 0.0298}}},
            "failures": {"count": 0, "request_latency": None},
        }
        self.assertEqual(inference_perf.read_results(json.dumps(found)), clients.Reported(200, 0, 0.0217, 0.0298))

    def test_inference_perf_is_configured_by_rate_or_by_concurrency(self):
        job = clients.Job("http://x", 282, 47, None, "/d")
        self.assertEqual(inference_perf.configuration(job)["load"]["stages"], [{"rate": 47, "duration": 6}])
        stages = inference_perf.configuration(job._replace(rate=None, concurrency=64))["load"]["stages"]
        self.assertEqual(stages, [{"num_requests": 282, "concurrency_level": 64}])

    def test_plimsoll(self):
        summary = {
            "successful": 1000,
            "failed": 0,
            "latency_seconds": {"ttft": {"p50": 0.0201, "p99": 0.0209}},
            "validity": {"verdict": "late", "reasons": [{"message": "agent a: p99 2 ms"}]},
        }
        text = json.dumps({"trials": [{"summary": summary}]})
        self.assertEqual(plimsoll.read_report(text), clients.Reported(1000, 0, 0.0201, 0.0209))
        self.assertEqual(plimsoll.read_verdict(text), ("late", ["agent a: p99 2 ms"]))

    def test_plimsolls_prompts_differ(self):
        rows = [json.loads(row) for row in plimsoll.workload()]
        self.assertEqual(len({row["prompt"] for row in rows}), len(rows))

    def test_wrk(self):
        said = "  68428 requests in 2.00s, 1.79GB read\nRequests/sec:  34214.02\nTransfer/sec:      0.90GB\n"
        self.assertEqual(wrk.read_requests(said), (68428, 34214.02))

    def test_the_engines_record_is_ordered_by_arrival(self):
        text = '{"id":"","read_ns":9,"first_ns":20,"last_ns":30,"events":2}\n{"id":"a","read_ns":5,"first_ns":40,"last_ns":40,"events":2}\n'
        self.assertEqual(engine.read_arrivals(text), [engine.Arrival(5, 40, 40), engine.Arrival(9, 20, 30)])


class Plan(unittest.TestCase):
    def test_a_rate_that_a_client_cannot_carry_is_not_tried(self):
        kinds = lambda ceiling, slow=False: [(r.kind, r.rate) for r in plan.further_runs(plan.SLOW, slow, ceiling)]
        self.assertEqual(kinds(100, slow=True), [("steady", 50)])
        self.assertEqual(kinds(400), [("steady", 200), ("half", 200)])
        self.assertEqual(kinds(4001.0), [("steady", 200), ("fast", 2000), ("half", 2000)])
        self.assertEqual(len(plan.further_runs(plan.QUICK, False, 4001.0, briefly=True)), 1)

    def test_runs_of_two_sizes_differ(self):
        for of in (plan.FAST, plan.PYTHON, plan.SLOW, plan.QUICK, plan.QUICK_PYTHON):
            runs = {run.kind: run for run in plan.first_runs(of, slow=False)}
            self.assertLess(runs["small"].requests, runs["large"].requests)
            self.assertLess(runs["paced-small"].requests, runs["paced-large"].requests)


class Process(unittest.TestCase):
    """With the interpreter as the program: what is counted is of the whole tree, and nothing is left of it."""

    def run_python(self, code, limit=60):
        with tempfile.TemporaryDirectory() as folder:
            core = min(os.sched_getaffinity(0))
            return process.run([sys.executable, "-c", code], core, limit, os.path.join(folder, "log"))

    def test_the_time_of_children_and_orphans_counts(self):
        process.adopt_orphans()
        # The child burns, says so, and outlives the parent, which does next to nothing and does not wait for it.
        child = "import time\nwhile time.process_time() < 0.3: pass\nprint('x', flush=True)\ntime.sleep(600)"
        parent = "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', %r], stdout=subprocess.PIPE).stdout.read(1)"
        finished = self.run_python(parent % child)
        self.assertEqual((finished.exit, finished.ended_for_taking_long), (0, False))
        self.assertGreaterEqual(finished.cpu_seconds, 0.3)
        self.assertEqual(process.children_of(os.getpid()), [])

    def test_what_hangs_is_ended(self):
        finished = self.run_python("import time\ntime.sleep(600)", limit=0.5)
        self.assertTrue(finished.ended_for_taking_long)
        self.assertNotEqual(finished.exit, 0)


def example(turns=1):
    """Results with two clients, of which the second is four times as dear."""
    rows = []
    for turn in range(turns):
        for name, times in (("plimsoll", 1), ("vllm", 4)):
            for run in [*plan.first_runs(plan.FAST, False), *plan.further_runs(plan.FAST, False, 4000)]:
                row = {"client": name, "kind": run.kind, "requests": run.requests, "rate": run.rate, "turn": turn, "problem": None}
                row |= {"started_ns": 0, "ended_ns": 10**9, "cpu_seconds": times * (0.5 + run.requests * 128e-6)}
                row |= {"cpu_by_program": {"agent": run.requests * 96e-6}, "peak_pss_bytes": 64 << 20, "peak_processes": 2}
                row |= {"other_cores": 0.1, "load": 1.0, "engine_cpu_seconds": 0.25, "command": name + " URL"}
                row |= {"start_to_first_s": 0.5, "last_to_exit_s": 0.25, "achieved": run.rate or 4000 / times}
                row |= {"added_ttft": [0.0001 * times, 0.001 * times]}
                if run.rate:
                    row["deviation"] = {"p50": 2e-5 * times**2, "p99": 1e-4 * times**2, "max": 1e-3, "drift": 0.0}
                rows.append(row)
    about = {n: {"title": n.capitalize(), "version": "1", "note": "", "constant": True} for n in ("plimsoll", "vllm", "wrk")}
    machine = {"cores": 2, "model": "M", "kernel": "6", "commit": "abc", "date": "today", "real_time": True}
    return {"machine": machine, "seconds": 60.0, "clients": about, "rows": rows}


class Table(unittest.TestCase):
    def test_three_digits_are_enough(self):
        self.assertEqual([table.number(x) for x in (0.01234, 1.234, 12.34, 1234.5, None)], ["0.012", "1.23", "12.3", "1,234", "–"])
        self.assertEqual(table.shown(figures.spread([1.0, 2.0, 3.0])), "2.00 (1.00–3.00)")

    def test_costs_and_ratios_are_those_of_the_results(self):
        text = table.render(example(turns=3))
        self.assertIn("| Plimsoll | 1 | 1.00 (1.00–1.00) |", text)
        self.assertIn("| Vllm | 1 | 4.00 (4.00–4.00) |", text)
        # 4 times dearer is not 10 times, and 16 times further off is.
        self.assertIn("| ≥ 10× | 4.00× (Vllm: 4.00 against 1.00 µs) | **no** |", text)
        self.assertIn("| ≥ 10× | 16.0× (Vllm: 0.320 against 0.020 ms) | yes |", text)
        self.assertIn("the agent takes 0.750 (0.750–0.750) and the coordinator 0.250 (0.250–0.250) µs in one write", text)
        # SGLang's client was not there: nothing is claimed.
        self.assertIn("| ≥ 2.5× | – | – |", text)

    def test_a_run_that_failed_counts_for_nothing_and_is_told(self):
        results = example()
        for row in results["rows"]:
            if row["client"] == "vllm" and row["kind"] == "steady":
                row["problem"] = "ended after 90 s"
        text = table.render(results)
        self.assertIn("- Vllm, steady: ended after 90 s", text)
        self.assertNotIn("16.0×", text)

    def test_a_client_without_constant_gaps_is_not_held_against_a_schedule(self):
        results = example()
        results["clients"]["vllm"]["constant"] = False
        self.assertNotIn("16.0×", table.render(results))

    def test_only_what_is_between_the_markers_is_written(self):
        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "page.md")
            with open(page, "w") as file:
                file.write("before\n%s\nold\n%s\nafter\n" % (table.BEGIN, table.END))
            table.write(page, "new")
            with open(page) as file:
                self.assertEqual(file.read(), "before\n%s\n\nnew\n\n%s\nafter\n" % (table.BEGIN, table.END))
            with open(page, "w") as file:
                file.write("no markers\n")
            with self.assertRaises(SystemExit):
                table.write(page, "new")


if __name__ == "__main__":
    unittest.main()
