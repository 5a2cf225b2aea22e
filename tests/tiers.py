"""Which tests run where: in `make test`, once more as an ordinary user, or only in `make test-full`.

What decides is what can break a test, not how long it takes:

- A change of this repository can break it: it is in `make test`, which CI runs as root.
- Its result may depend on the user who runs it: it is also in `make test-user`, which CI runs as an ordinary user. What
  cannot depend on the user is marked `any_user`, by a list in this module that gives each one's reason; containers are
  started by an engine, whoever asks it, so tests in them are left out as well.
- Only a combination of two parts that `make test` tries with others, or a release of somebody else's program, can
  break it: it is marked `full`, by a list in this module, and runs in `make test-full`.
"""

import io
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path, PurePath

import pytest

ANY_USER: Mapping[str, str] = {
    "cli/test_continue.py": "conversations that go on; sandboxes of runs are tried as both users by promises",
    "cli/test_escape.py": "text of agents, made harmless",
    "cli/test_execute.py": "commands in sandboxes; `exec` is tested as both users by promises",
    "cli/test_herdctl.py": "files of another tool, read",
    "cli/test_image.py": "requests to an engine",
    "cli/test_live.py": "events, printed",
    "cli/test_loop_look.py": "loops as commands show them; smaller loops are tested as both users elsewhere",
    "cli/test_loop_view.py": "loops at work, printed",
    "cli/test_options.py": "options, read",
    "cli/test_plain.py": "policies, printed",
    "cli/test_policy.py": "policies, printed",
    "cli/test_prices.py": "prices, and limits on cost that the gateway enforces",
    "cli/test_question.py": "runs that end with a question, and its answer",
    "cli/test_real_clients.py": "what clients do with a credential that is put inside",
    "cli/test_run_outcomes.py": "how runs end, by what models do",
    "cli/test_session.py": "conversations, read and shown",
    "cli/test_settings.py": "what options come to",
    "cli/test_standing.py": "how commands end",
    "cli/test_swap.py": "settings of injected credentials, read and judged",
    "cli/test_transcript.py": "events, printed",
    "cli/test_tree.py": "the tree of commands",
    "cli/test_unconnected.py": "output of programs, read",
    "config/test_arguments.py": "arguments, read",
    "config/test_egress.py": "rules, read",
    "config/test_environment.py": "variables, read",
    "config/test_forward.py": "forwards, read",
    "config/test_host.py": "names of hosts, read",
    "config/test_layers.py": "layers of settings, put together",
    "config/test_model.py": "settings, read and judged",
    "config/test_old_names.py": "names of settings",
    "config/test_path_pattern.py": "patterns of paths, compared as text",
    "config/test_references.py": "references, read",
    "config/test_secret_reference.py": "references, read",
    "config/test_swap.py": "settings of injected credentials, read and judged",
    "config/test_template.py": "a file, written from the models",
    "config/test_units.py": "sizes and durations, read",
    "config/test_yaml.py": "YAML, read",
    "docs/": "what pages print; the commands in them are tested as both users by promises",
    "egress/engine/": "requests to an engine, taken apart and judged",
    "egress/gateway/": "requests to models, spoken with servers on loopback",
    "egress/http/": "HTTP, spoken on loopback",
    "egress/injection/": "requests with a placeholder; the proxy's socket is tried as both users",
    "egress/proxy/test_attacks.py": "requests to the proxy; its socket is tried as both users",
    "egress/proxy/test_client_hello.py": "bytes of TLS, read",
    "egress/proxy/test_clients.py": "what programs inside say to the proxy; its socket is tried as both users",
    "egress/proxy/test_decision.py": "requests, judged",
    "egress/proxy/test_host_proxy.py": "a proxy, on loopback",
    "egress/proxy/test_relay.py": "heads of requests, read and written",
    "egress/proxy/test_request.py": "heads of requests, read",
    "egress/test_address.py": "addresses, read and judged",
    "egress/test_hostile_bytes.py": "bytes from inside, read",
    "egress/test_limiter.py": "how often something may happen",
    "egress/test_resolver.py": "names, looked up on loopback",
    "egress/test_stream.py": "connections, on loopback",
    "egress/test_transfer.py": "connections, on loopback",
    "endings/": "how runs end, by what models and programs do; ends of commands are tested as both users by promises",
    "engine/": "workflows, their database and their executors",
    "events/": "the shape of records",
    "examples/": "projects of the examples; both users run the demo",
    "fleet/chaos/": "a fleet whose processes, database and disk fail",
    "fleet/config/": "files of fleets, read and judged",
    "fleet/daemon/test_api": "requests to a daemon, asked at random",
    "fleet/daemon/test_commands.py": "what a daemon answers to commands",
    "fleet/daemon/test_connection_limits.py": "connections, on loopback",
    "fleet/daemon/test_dispatcher.py": "which rows begin",
    "fleet/daemon/test_due_jobs.py": "rows of a database",
    "fleet/daemon/test_gc.py": "what is kept of jobs, and for how long",
    "fleet/daemon/test_herdctl.py": "a fleet by another tool's files",
    "fleet/daemon/test_history.py": "rows of a database, read without its daemon",
    "fleet/daemon/test_limits.py": "how long a job may go on",
    "fleet/daemon/test_log": "lines of a daemon and its workers",
    "fleet/daemon/test_machine.py": "a fleet's database, and other machines, on loopback",
    "fleet/daemon/test_monitoring.py": "a daemon's figures",
    "fleet/daemon/test_reload.py": "what a daemon makes of changed files",
    "fleet/daemon/test_sources.py": "work that is claimed of others, on loopback",
    "fleet/daemon/test_triggers.py": "what makes jobs",
    "fleet/herdctl/": "files of another tool, read",
    "fleet/schedule/": "calculation of due times",
    "fleet/store/": "rows of a database",
    "fleet/test_night.py": "a question to a person, and its answer in a browser",
    "fleet/test_prompt_template.py": "prompts, filled in",
    "fleet/test_record_store.py": "archives, read and judged",
    "fleet/test_retention.py": "what is kept of jobs, and for how long",
    "fleet/test_submission.py": "concurrent creation of jobs",
    "fleet/tracing/": "what a collector is sent",
    "fleet/trigger/": "requests, files and work sources, judged",
    "fleet/worker/test_hooks.py": "hooks of jobs; sandboxes of commands are tried as both users by promises",
    "fleet/worker/test_job_settings.py": "settings, put together",
    "fleet/worker/test_messages.py": "messages, on loopback",
    "fleet/worker/test_questions.py": "questions to people, and their answers",
    "fleet/worker/test_sessions.py": "what agents of a fleet remember",
    "golden/": "formats of state that version 0.1 wrote",
    "integrations/attestation/test_command_signature.py": "signatures, made and verified",
    "integrations/attestation/test_comparison.py": "lists of files, compared",
    "integrations/attestation/test_envelope.py": "bytes of envelopes, read",
    "integrations/attestation/test_manifest.py": "lists of files, written and read",
    "integrations/attestation/test_timestamp.py": "time-stamps, read and judged",
    "integrations/clients/": "what clients may do on the host; their configuration is written as both users",
    "integrations/mcp/test_http.py": "requests over HTTP; clients' sandboxes are tried as both users over stdio",
    "integrations/mcp/test_limits.py": "arguments, judged; clients' sandboxes are tried as both users by others",
    "integrations/mcp/test_output.py": "pages of output",
    "integrations/mcp/test_protocol.py": "messages, read and written",
    "integrations/test_evaluation_sandbox.py": "settings, put together",
    "integrations/test_inspect_provider.py": "samples of a harness; sandboxes are tried as both users by promises",
    "integrations/test_mini_swe_agent.py": "commands of a harness; sandboxes are tried as both users by promises",
    "integrations/test_swe_rex.py": "sessions of a harness; sandboxes are tried as both users by promises",
    "job/terminal/test_modes.py": "bytes of terminals, read",
    "job/terminal/test_typed.py": "bytes of terminals, read",
    "job/test_agent.py": "prompts made",
    "job/test_continuing.py": "records, read",
    "job/test_model_access.py": "settings of a gateway, put together",
    "job/test_outcome.py": "what ended a run, classified",
    "job/test_question.py": "events, read",
    "job/test_recorder.py": "events, put in order",
    "job/test_state.py": "states, and what follows which",
    "journal/test_blobs.py": "records, written and read",
    "journal/test_chain.py": "records, read and verified",
    "journal/test_reading.py": "records, read",
    "journal/test_runs.py": "records, listed",
    "journal/test_session.py": "records, read",
    "journal/test_tampering.py": "records, read and verified",
    "journal/test_verification.py": "records, read and verified",
    "kubernetes/": "responses of an API server",
    "ledger/": "lists of tests",
    "loop/corpus/": "what a gate makes of attempts, run inside",
    "loop/machine/test_agent_instructions.py": "files of attempts, compared as data",
    "loop/machine/test_asking_people.py": "questions about stories, and their answers",
    "loop/machine/test_bounds.py": "what attempts leave, bounded",
    "loop/machine/test_check_runner.py": "reports of checks, put together",
    "loop/machine/test_checks.py": "what checks and roles said",
    "loop/machine/test_deciding.py": "what decides about a story",
    "loop/machine/test_dying.py": "a loop whose process is killed",
    "loop/machine/test_faults.py": "infrastructure faults",
    "loop/machine/test_goal.py": "stories that are drafted",
    "loop/machine/test_going_on.py": "what a resumed loop takes from its rows",
    "loop/machine/test_hostile_roles.py": "what roles do and answer, read and judged",
    "loop/machine/test_limits.py": "a loop's bounds",
    "loop/machine/test_parallel.py": "stories beside each other",
    "loop/machine/test_person.py": "what a person decides about a story",
    "loop/machine/test_pool.py": "when sandboxes are opened and closed",
    "loop/machine/test_proposing.py": "a branch that is pushed, and its pull request",
    "loop/machine/test_rejecting.py": "why attempts are rejected",
    "loop/machine/test_which.py": "loops beside each other",
    "loop/protection/": "files of attempts, compared as data",
    "loop/real/": "loops whose roles are real clients, inside",
    "loop/report/": "what is written of a loop's rows",
    "loop/repository/test_crash.py": "a repository whose process is killed",
    "loop/repository/test_hostile.py": "what attempts leave, taken as data",
    "loop/repository/test_machine.py": "actions in any order, each of which is tried as both users",
    "loop/role/": "prompts made, and answers read",
    "loop/story/": "stories, read, judged and put in order",
    "loop/suite/": "what runners tell, inside",
    "loop/test_costs.py": "statements and processes, counted",
    "loop/test_store.py": "rows of a database",
    "model/": "requests and replies of the Messages API, spoken with a server on loopback",
    "mutants/": "lists of guards",
    "promises/test_checks.py": "reports of test runners, and files that decide a check, compared as data",
    "promises/test_configuration.py": "files of configuration, read and judged",
    "promises/test_exit_codes.py": "codes of ends that sandboxes, models and settings bring about",
    "promises/test_fleet": "fleet files, jobs and commands; start and stop are tested as both users elsewhere",
    "promises/test_gateway.py": "requests to models, spoken with servers on loopback",
    "promises/test_loop_": "what test writers, judges and deliveries of loops may do; smaller loops run as both users",
    "promises/test_loops.py": "loops as commands show them; smaller loops are tested as both users elsewhere",
    "promises/test_policy.py": "policies, put together and shown",
    "promises/test_printed_commands.py": "commands that are printed; other promises test them as both users",
    "promises/test_python.py": "the Python API; what it opens and runs is tried as both users by commands",
    "promises/test_records.py": "records, read and verified",
    "promises/test_runtimes.py": "what the agents' programs say and do inside",
    "promises/test_scripted_model.py": "a server for tests, on loopback",
    "promises/test_sessions.py": "conversations, read and shown",
    "promises/test_triggers.py": "what makes jobs",
    "real_clients/test_driving.py": "what clients do when they are told to end, inside",
    "real_clients/test_hostile_repository.py": "what clients read of a repository, inside",
    "real_clients/test_keyless.py": "what clients say to their models, by the gate",
    "real_clients/test_options.py": "what options mean to clients, inside",
    "real_clients/test_sdk.py": "what the SDK says to a client, inside",
    "real_clients/test_sessions.py": "what clients remember, inside",
    "real_clients/test_terminal.py": "clients on a terminal; terminals are tested as both users by promises",
    "real_clients/test_traffic.py": "hosts that clients contact",
    "runtime/agent_cli/test_claude_": "claude's arguments and output, made and read",
    "runtime/agent_cli/test_codex_": "codex' arguments and output, made and read",
    "runtime/agent_cli/test_ending.py": "what agent CLIs printed at their end, classified",
    "runtime/agent_cli/test_hostile_output.py": "what agent CLIs print, read and classified",
    "runtime/agent_cli/test_runtime.py": "what clients print and do, inside",
    "runtime/claude_sdk/test_exchange.py": "messages between the SDK and a client that is the test",
    "runtime/claude_sdk/test_runtime.py": "what clients say to the SDK, inside",
    "runtime/claude_sdk/test_wire.py": "messages between the SDK and a client, read",
    "runtime/claude_sdk/test_with_the_sdk.py": "messages between the SDK and a client that is the test",
    "runtime/test_": "conversations with a scripted model",
    "runtime/transcript/": "texts that agent CLIs wrote, read and shown",
    "sandbox/channels/": "frames of a guest that is the test",
    "sandbox/docker/image/test_build_log.py": "output of a build, read",
    "sandbox/docker/image/test_contents.py": "what is in images, looked at inside",
    "sandbox/docker/image/test_failure.py": "output of a build, classified",
    "sandbox/docker/image/test_recipe.py": "recipes of images, read",
    "sandbox/docker/test_create.py": "requests to an engine, made",
    "sandbox/docker/test_ending.py": "replies of an engine, classified",
    "sandbox/docker/test_failure.py": "replies of an engine, classified",
    "sandbox/docker/test_labels.py": "labels, made and read",
    "sandbox/docker/test_limits.py": "replies of an engine, judged",
    "sandbox/docker/test_multiplex.py": "bytes of an engine, read",
    "sandbox/docker/test_readback.py": "replies of an engine, judged",
    "sandbox/guest/test_frames.py": "frames, written and read",
    "sandbox/kubernetes/test_manifest.py": "requests to a cluster, made, and its replies, judged",
    "sandbox/pool/test_conformance.py": "sandboxes from the pool are a backend's, whose contract both users try",
    "sandbox/pool/test_pool.py": "when sandboxes are opened and handed out; promises try a warm one as both users",
    "sandbox/seccomp/test_compile.py": "programs for the kernel, made and simulated",
    "sandbox/test_files.py": "listings of a guest, read",
    "sandbox/test_image_name.py": "names of images, read",
    "sandbox/test_inspect_contract.py": "another project's checks of what the contract says, which both users try",
    "sandbox/test_link.py": "frames of a guest that is the test",
    "sandbox/test_result.py": "output, cut",
    "sandbox/test_stream.py": "streams of bytes",
    "sandbox/workspace/test_protected.py": "names of files, compared as text",
    "secret/test_redact.py": "texts with secrets, redacted",
    "secret/test_shapes.py": "texts, searched for secrets",
    "secret/test_value.py": "bytes of sources, read",
    "skills/": "texts of a skill, compared with the commands",
    "test_frozen.py": "dataclasses",
    "test_identifiers.py": "names in the source",
    "test_packaging.py": "what is in a wheel",
    "test_promises.py": "imports of tests",
    "test_rooms.py": "imports of the source",
    "testing/scripted_model/": "a server for tests, on loopback",
    "testing/test_work_source.py": "checks of work sources, tried on some that break their promises",
    "tool/": "tools of agents, by a sandbox, whose contract both users try",
    "web/test_loop_page.py": "pages in a browser; its server and sign-in are tested as both users",
    "web/test_pages.py": "pages in a browser; its server and sign-in are tested as both users",
}
"""Files and directories below `tests/` whose tests cannot depend on who runs them, and why."""

DEPENDS_ON_USER = ("egress/gateway/test_in_", "test_proxy.py", "runtime/transcript/test_files.py")
"""Exceptions from `ANY_USER`: tests that open sandboxes or sockets of an engine, or files that root alone can read."""

GVISOR = "Docker's daemon starts gVisor; Docker itself is tested"
MARKED = "marked in its file: a smaller test of the same runs as both users"

CONTAINERS = frozenset({"podman", "gvisor"})
"""Values of a test's parameters that name an engine besides Docker."""

FULL: Mapping[str, str] = {
    "egress/gateway/test_in_containers.py": "the gateway's stream is Docker's, which is tried",
    "egress/proxy/": "the proxy's stream is Docker's, which is tried",
    "egress/injection/": "the stream of injected credentials is Docker's, which is tried",
    "real_clients/test_conformance.py": "each program is tried in bubblewrap and Docker, each engine by its own suite",
    "sandbox/test_conformance.py": "the contract is tried in bubblewrap and Docker, Podman and gVisor by escapes",
}
"""Files and directories below `tests/` that try Podman and gVisor in `make test-full` only, and why."""


def any_user_reason(item: pytest.Item) -> str | None:
    """The reason why a test does not depend on the user; None if it may depend."""
    if "gvisor" in _parameters(item):
        return GVISOR
    return any_user_reason_of_file(item.path)


def any_user_reason_of_file(path: Path) -> str | None:
    """The reason why no test of a file depends on the user; None if one may depend."""
    if any(part in _below_tests(path) for part in DEPENDS_ON_USER):
        return None
    return _reason_in(ANY_USER, path)


def full_reason(item: pytest.Item) -> str | None:
    """Why a test is left to `make test-full`; None if it is in `make test`."""
    return _reason_in(FULL, item.path) if _parameters(item) & CONTAINERS else None


def mark(items: list[pytest.Item]) -> None:
    """Mark all tests with the tiers that they are in."""
    for item in items:
        if reason := any_user_reason(item):
            item.add_marker(pytest.mark.any_user(reason))
        if reason := full_reason(item):
            item.add_marker(pytest.mark.full(reason))


def _parameters(item: pytest.Item) -> set[str]:
    values = vars(getattr(item, "callspec", None) or object).get("params", {}).values()
    return {value for value in values if isinstance(value, str)}


def _reason_in(places: Mapping[str, str], path: Path) -> str | None:
    below = _below_tests(path)
    return next((reason for place, reason in places.items() if below.startswith(place)), None)


def _below_tests(path: Path) -> str:
    return path.as_posix().rpartition("/tests/")[2]


class _Count:
    """Counts the marked tests by their reasons, and runs none."""

    def __init__(self) -> None:
        self.reasons = {"any_user": Counter[str](), "full": Counter[str]()}
        self.total = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Count what was collected."""
        self.total = len(items)
        for name, reasons in self.reasons.items():
            for marker in filter(None, (item.get_closest_marker(name) for item in items)):
                reasons[marker.args[0] if marker.args else MARKED] += 1
        items.clear()


def main() -> int:
    """Print how many tests are left out of each tier, and why; 1 if a module cannot be read."""
    count = _Count()
    tests = str(PurePath(__file__).parent)
    with redirect_stdout(io.StringIO()) as output:
        found = pytest.main([tests, "-qqq", "-n0"], plugins=[count])
    if found != pytest.ExitCode.NO_TESTS_COLLECTED:
        print(output.getvalue(), file=sys.stderr)
        return 1
    for name, title in (
        ("any_user", "cannot depend on who runs them"),
        ("full", "are in make test-full only"),
    ):
        print(f"{count.reasons[name].total()} of {count.total} tests {title}")
        for reason, number in count.reasons[name].most_common():
            print(f"{number:6}  {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
