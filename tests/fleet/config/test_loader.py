"""Loading a fleet's files: layers, includes, overrides, and the place that each error names."""

from pathlib import Path

import pytest
from tests.fleet.config.conftest import Load

from ringfence.errors import ConfigurationError
from ringfence.fleet.config.difference import differences, explicit_values


def test_what_an_agent_does_not_say_its_file_says(load: Load):
    """The sections at the top level apply to all agents; an agent's own keys override them, key by key."""
    fleet = load(
        "sandbox: {memory: 1g, pids: 90}\nagents:\n  a: {sandbox: {pids: 50}}\n  b: {}\n",
    )
    one, other = fleet.agents["a"].settings.sandbox, fleet.agents["b"].settings.sandbox
    assert (one.memory, one.pids, other.pids) == (1024**3, 50, 90)
    assert one.soft_limits is False
    assert str(fleet.agents["a"].origin("sandbox.pids")).endswith("ringfence.yaml:3:23")
    assert str(fleet.agents["a"].origin("sandbox.memory")).endswith("ringfence.yaml:1:19")


def test_a_notification_of_the_fleet_has_its_place(load: Load):
    """A hook that an agent has from `fleet.notify` is said to be from there, beside the agent's own hooks."""
    hook = '{type: webhook, url: "http://127.0.0.1:9/"}'
    text = (
        f"fleet: {{notify: [{hook}]}}\nagents:\n  a: {{prompt: x}}\n  b: {{hooks: {{on_inbox: [{hook}]}}}}\n"
    )
    agents = load(text).agents
    assert str(agents["a"].origin("hooks.on_inbox")).endswith("ringfence.yaml:1:17")
    assert str(agents["b"].origin("hooks.on_inbox")).endswith("ringfence.yaml:4:25")


def test_the_users_file_is_the_weakest(load: Load, tmp_path: Path):
    """The user's own file applies to agents too, until a file of the fleet overrides it."""
    user = tmp_path / "config" / "ringfence" / "ringfence.yaml"
    user.parent.mkdir(parents=True)
    user.write_text("limits: {turns: 7, tool_calls: 8}\n")
    fleet = load("limits: {turns: 9}\nagents: {a: {}}\n")
    assert (fleet.agents["a"].settings.limits.turns, fleet.agents["a"].settings.limits.tool_calls) == (9, 8)


def test_one_small_key_turns_nothing_else_off(load: Load):
    """An agent that sets one limit keeps all other values of its fleet."""
    text = "sandbox: {backend: docker, image: 'a:1', memory: 4g, mode: read_only}\nagents: {a: {sandbox: {pids: 50}}}\n"
    sandbox = load(text).agents["a"].settings.sandbox
    assert (sandbox.backend, sandbox.mode, sandbox.memory, sandbox.pids) == (
        "docker",
        "read_only",
        4 * 1024**3,
        50,
    )


def test_includes_join_under_their_names(load: Load):
    """Agents of included files have qualified names; two includes may lead to the same file."""
    fleet = load(
        "fleet: {name: top}\ninclude:\n  - {file: left.yaml}\n  - {file: right.yaml}\nagents: {a: {}}\n",
        left="fleet: {name: left}\ninclude: [{file: shared.yaml}]\n",
        right="fleet: {name: right}\ninclude: [{file: shared.yaml, name: other}]\n",
        shared="fleet: {name: shared}\nagents: {a: {}}\n",
    )
    assert list(fleet.agents) == ["a", "left.shared.a", "right.other.a"]


def test_overrides_from_further_out_are_stronger(load: Load):
    """An include may override all agents of its file or one; the outermost override wins, and is checked too."""
    files = {
        "mid": "fleet: {name: mid}\ninclude:\n  - file: low.yaml\n"
        "    overrides: {agents: {a: {priority: 1}}, limits: {turns: 2}}\n",
        "low": "fleet: {name: low}\nagents: {a: {priority: 0}, b: {}}\n",
    }
    fleet = load("include:\n  - {file: mid.yaml, overrides: {agents: {low.a: {priority: 5}}}}\n", **files)
    assert fleet.agents["mid.low.a"].settings.priority == 5
    assert fleet.agents["mid.low.b"].settings.limits.turns == 2
    with pytest.raises(
        ConfigurationError, match=r"ringfence\.yaml:2:\d+: agents\.mid\.low\.a\.priority: 'lots'"
    ):
        load("include:\n  - {file: mid.yaml, overrides: {agents: {low.a: {priority: lots}}}}\n", **files)


def test_paths_are_relative_to_the_file_that_says_them(load: Load, tmp_path: Path):
    """Workspaces and scripts are relative to the file that names them; the default workspace is its directory."""
    fleet = load(
        "include: [{file: sub/f.yaml}]\n",
        sub__f="fleet: {name: s}\nagents: {a: {workspace: ../w}, b: {run: {model: 'scripted:m.yaml'}}}\n",
    )
    assert fleet.agents["s.b"].settings.run.model == f"scripted:{tmp_path / 'crew' / 'sub' / 'm.yaml'}"
    assert fleet.agents["s.a"].settings.workspace == tmp_path / "crew" / "w"
    assert fleet.agents["s.b"].settings.workspace == tmp_path / "crew" / "sub"


def test_variables_are_put_in_before_anything_is_checked(load: Load):
    """A number, a name in a path, or a default may come from a variable; a secret stays a reference."""
    fleet = load(
        "fleet: {concurrency: '${N}', webhooks: {address: '127.0.0.1:8081'}}\n"
        "secrets: {hook: 'env:HOOK'}\n"
        "agents:\n  a:\n    prompt: 'Mend ${WHAT:-it} for $$5'\n    triggers:\n"
        "      t: {type: webhook, secret: '${secret:hook}'}\n",
        environ={"N": "3"},
    )
    assert fleet.settings.concurrency == 3
    assert fleet.agents["a"].settings.prompt == "Mend it for $5"
    assert getattr(fleet.agents["a"].settings.triggers["t"], "secret", None) == "${secret:hook}"


def _hooked(kind: str, url: str) -> str:
    return f"agents: {{a: {{hooks: {{on_failure: [{{type: {kind}, url: '{url}'}}]}}}}}}"


WRONG = {
    "unknown-key": (
        "agents: {a: {prompt: x, promt: y}}",
        r":1:25: agents\.a\.promt: .* did you mean 'prompt'\?",
    ),
    "unknown-section": ("fleeet: {}", r":1:1: there is no key 'fleeet'; did you mean 'fleet'\?"),
    "deep": ("agents:\n  a:\n    schedules:\n      n: {crn: '@daily'}", r":4:11: .*did you mean 'cron'\?"),
    "trigger-kind": (
        "agents: {a: {triggers: {t: {type: webhok}}}}",
        r":1:35: .*'webhok' is not one of 'webhook'",
    ),
    "hook-moment": (
        "agents: {a: {hooks: {on_sucess: []}}}",
        r":1:22: agents\.a\.hooks\.on_sucess: .* did you mean 'on_success'\?$",
    ),
    "word": (
        "agents: {a: {schedules: {s: {every: 1m, overlap: replce}}}}",
        r":1:50: agents\.a\.schedules\.s\.overlap: .* did you mean 'replace'\?$",
    ),
    "key-of-another-kind": (
        "agents: {a: {triggers: {t: {type: files, path: [x]}}}}",
        r":1:42: agents\.a\.triggers\.t\.path: there is no key 'path'; did you mean 'paths'\?",
    ),
    "key-named-as-its-kind": (
        "agents: {a: {hooks: {after_run: [{type: command}]}}}",
        r"agents\.a\.hooks\.after_run\.0\.command is missing; write it$",
    ),
    "within-of-no-session": (
        "agents: {a: {session: {within: 1h}}}",
        r":1:32: agents\.a\.session\.within: it has no effect without `policy: resume`",
    ),
    "pause-before-no-try": (
        "agents: {a: {retry: {attempts: 1, backoff: 1h}}}",
        r":1:44: agents\.a\.retry\.backoff: it has no effect with `attempts: 1`",
    ),
    "tries-after-no-end": (
        "agents: {a: {retry: {on: [], attempts: 2}}}",
        r":1:40: agents\.a\.retry\.attempts: it has no effect while `on` is empty",
    ),
    "all-slots-skipped": (
        "agents: {a: {prompt: x, schedules: {s: {every: 1m, catch_up: all}}}}",
        r":1:62: agents\.a\.schedules\.s\.catch_up: .* write `overlap: queue`",
    ),
    "required-afterwards": (
        "agents: {a: {hooks: {on_limit: [{type: command, command: x, required: true}]}}}",
        r":1:71: agents\.a\.hooks\.on_limit\.0\.required: it has no effect after the run",
    ),
    "trigger-key": (
        "agents: {a: {triggers: {t: {type: files, pahts: [x]}}}}",
        r"triggers\.t\.paths is missing.*did you mean 'paths'\?",
    ),
    "both-places": ("agents: {a: {workspace: ., repository: {url: x}}}", r":1:10: agents\.a: .*not both"),
    "every-and-cron": (
        "agents: {a: {schedules: {s: {every: 1m, cron: '@daily'}}}}",
        "either `every` or `cron`",
    ),
    "variable": (
        "agents: {a: {prompt: 'x ${NOPE}'}}",
        r":1:22: agents.a.prompt: the variable 'NOPE' is not set",
    ),
    "variable of the crew": (
        "fleet: {name: '${NOPE}'}",
        r":1:15: fleet.name: the variable 'NOPE' is not set",
    ),
    "reference": ("agents: {a: {prompt: 'x ${a b}'}}", r"is not a reference; write \$\{NAME\}"),
    "name": ("agents: {'../x': {}}", r"'\.\./x' is not a valid name"),
    "list": ("agents: [a, b]", "agents: write a mapping"),
    "agent-is-text": ("agents: {a: hello}", r"agents\.a: write a mapping"),
    "cron": (
        "agents: {a: {schedules: {s: {cron: '99 * * * *'}}}}",
        r":1:36: agents\.a\.schedules\.s\.cron: ",
    ),
    "impossible": ("agents: {a: {schedules: {s: {cron: '0 0 30 2 *'}}}}", r"schedules\.s\.cron: "),
    "too-often": (
        "agents: {a: {prompt: x, schedules: {s: {every: 10ms}}}}",
        r":1:48: agents\.a\.schedules\.s\.every: an interval of 0\.01 s is too short; take at least 1s$",
    ),
    "zone": (
        "agents: {a: {schedules: {s: {cron: '@daily', timezone: Europe/Berln}}}}",
        r"Europe/Berlin",
    ),
    "zone-once": (
        "agents: {a: {prompt: x, schedules: {s: {cron: '@daily', timezone: Europe/Berln}}}}",
        r":1:67: agents\.a\.schedules\.s\.timezone: [^;]*; [^;]*$",
    ),
    "zone-of-all": ("fleet: {timezone: Nowhere}", r":1:19: fleet\.timezone: there is no time zone 'Nowhere'"),
    "schedule-name": (
        "agents: {a: {prompt: x, schedules: {My Day: {every: 1h}}}}",
        r":1:37: agents\.a\.schedules\.My Day: 'My Day' is not a valid name; write up to 40 small letters",
    ),
    "section-as-text": (
        "agents: {a: {session: resume}}",
        r"'resume' is not a mapping$",
    ),
    "trigger-of-no-kind": (
        "agents: {a: {triggers: {t: {paths: [x]}}}}",
        r":1:28: agents\.a\.triggers\.t\.type is missing; write it$",
    ),
    "payload-by-the-clock": (
        "agents: {a: {prompt: 'See {{ payload.x }}', schedules: {s: {every: 1h}}}}",
        r":1:60: agents\.a\.schedules\.s: the agent prompt contains 'payload\.x', which only triggers provide",
    ),
    "unnamed-secret": (
        (
            "fleet: {webhooks: {address: 'localhost:80'}}\nsecrets: {hook: 'env:X'}\n"
            "agents: {a: {prompt: x, triggers: {t: {type: webhook, secret: '${secret:hok}'}}}}"
        ),
        r":3:63: agents\.a\.triggers\.t\.secret: secret 'hok' has no source; did you mean 'hook'\?",
    ),
    "unnamed-secret-of-a-hook": (
        "agents: {a: {hooks: {after_run: [{type: slack, url: 'https://h/${secret:chat}'}]}}}",
        r"hooks\.after_run\.0\.url: secret 'chat' has no source; add it under `secrets:` as `chat: env:",
    ),
    "after-nobody": ("agents: {ab: {}, b: {triggers: {t: {type: after, agent: aab}}}}", "did you mean 'ab'"),
    "after-itself": ("agents: {a: {triggers: {t: {type: after, agent: a}}}}", "without end: a -> a"),
    "circle": (
        "agents:\n  a: {triggers: {t: {type: after, agent: b}}}\n  b: {triggers: {t: {type: after, agent: a}}}",
        "without end: a -> b -> a",
    ),
    "second-circle": (
        (
            "agents:\n  a: {triggers: {t: {type: after, agent: b}, u: {type: after, agent: c}}}\n  b: {}\n"
            "  c: {triggers: {t: {type: after, agent: a}}}"
        ),
        "without end: (a -> c -> a|c -> a -> c)",
    ),
    "own-prompt": (
        "agents: {b: {}, a: {prompt: 'do {{ x }}', triggers: {t: {type: after, agent: b}}}}",
        "the prompt asks for 'x'",
    ),
    "end": (
        "agents: {b: {}, a: {triggers: {t: {type: after, agent: b, states: [won]}}}}",
        "'won' is not an end of a job",
    ),
    "unheard": (
        "agents: {a: {triggers: {t: {type: webhook, secret: '${secret:x}'}}}}",
        "no address listens for it",
    ),
    "files-left-out-only": (
        "agents: {a: {prompt: x, workspace: ., triggers: {t: {type: files, paths: ['!x', '!y']}}}}",
        r":1:74: agents\.a\.triggers\.t\.paths: they only exclude files",
    ),
    "one-label": (
        (
            "secrets: {t: 'env:X'}\nagents: {a: {triggers: {t: {type: github, repository: a/b, "
            "token: '${secret:t}', label: mine, claimed_label: mine}}}}"
        ),
        r":2:\d+: agents\.a\.triggers\.t\.claimed_label: 'mine' is `label` as well",
    ),
    "shared": ("agents: {a: {concurrency: 2}}", r"share one workspace"),
    "shared-session": (
        "agents: {a: {repository: {url: x}, concurrency: 2, session: {policy: always}}}",
        r"1:\d+: agents\.a\.session\.policy: jobs that run at the same time cannot resume one session",
    ),
    "placeholder": (
        "agents: {b: {}, a: {triggers: {t: {type: after, agent: b, prompt: '{{ paylod.x }}'}}}}",
        "paylod",
    ),
    "host-hook": (
        "agents: {a: {hooks: {after_run: [{type: command, command: x, where: host}]}}}",
        r"write `unsafe: \[host_hooks\]`",
    ),
    "host": ("agents: {a: {sandbox: {backend: host}}}", r"write `unsafe: \[host_backend\]`"),
    "postgres": ("fleet: {engine: {type: postgres}}", "`url` goes with `type: postgres`"),
    "secret": (
        "agents: {a: {prompt: 'sk-ant-api03-" + "a" * 93 + "AA'}}",
        "a secret stands here in plain text",
    ),
    "plain-secret": (
        "agents: {a: {triggers: {t: {type: webhook, secret: letmein}}}}",
        r"triggers\.t\.secret: a secret stands here in plain text; write \$\{secret:NAME\}",
    ),
    "plain-token": (
        "agents: {a: {triggers: {t: {type: github, repository: a/b, token: letmein}}}}",
        r"triggers\.t\.token: a secret stands here",
    ),
    "plain-header": (
        "agents: {a: {hooks: {after_run: [{type: webhook, url: 'http://x', headers: {X-Api-Key: letmein}}]}}}",
        r"headers\.X-Api-Key: a secret stands here",
    ),
    "plain-slack": (
        _hooked("slack", "https://hooks.slack.com/services/T0/B0/letmein"),
        r":1:\d+: agents\.a\.hooks\.on_failure\.0\.url: a secret stands .* \$\{VARIABLE\} for that part of the address",
    ),
    "plain-discord": (
        _hooked("webhook", "https://discord.com/api/webhooks/123/letmein"),
        r"hooks\.on_failure\.0\.url: a secret stands here",
    ),
    "plain-user-of-a-hook": (
        _hooked("webhook", "https://me:letmein@host/x"),
        r"hooks\.on_failure\.0\.url: a secret stands here",
    ),
    "plain-password": (
        "fleet: {engine: {type: postgres, url: 'postgresql://me:letmein@host/crew'}}",
        r"fleet\.engine\.url: a secret stands here",
    ),
    "plain-password-of-records": (
        "fleet: {records: {url: 's3://key:letmein@bucket/records'}}",
        r"fleet\.records\.url: a secret stands here",
    ),
    "another-database": (
        "fleet: {engine: {type: postgres, url: 'mysql://host/crew'}}",
        r":1:39: fleet\.engine\.url: this is not the address of a Postgres server; write postgresql://",
    ),
    "no-task": (
        "agents: {a: {schedules: {n: {every: 5m}}}}",
        r"1:\d+: agents\.a\.schedules\.n: it has no task",
    ),
    "trigger-without-task": (
        "agents: {b: {}, a: {triggers: {t: {type: after, agent: b}}}}",
        r"triggers\.t: it has no task",
    ),
    "required-check-that-is-not-there": (
        "agents: {a: {run: {require_verified: true}}}",
        r"1:\d+: agents\.a\.run\.require_verified: a check must pass, and there is none",
    ),
    "required-check-that-is-not-wanted": (
        "agents: {a: {run: {require_verified: true, verify: none}}}",
        r"agents\.a\.run\.require_verified: a check must pass, and there is none",
    ),
    "hook-to-no-service": (
        "agents: {a: {hooks: {on_failure: [{type: webhook, url: 'ftp://host/x'}]}}}",
        r":1:\d+: agents\.a\.hooks\.on_failure\.0\.url: this is not the address of a service",
    ),
    "command-as-url": (
        "agents: {a: {repository: {url: 'ext::sh -c id'}}}",
        r"repository\.url: .*'ext::sh -c id' is not the address",
    ),
    "option-as-url": (
        "agents: {a: {repository: {url: '--upload-pack=id'}}}",
        "is not the address of a repository",
    ),
    "port": ("fleet: {webhooks: {address: 'localhost:99999'}}", "'localhost:99999' has no port"),
    "tab": ("agents:\n\ta: {}", r":2:1: this is not YAML: .*; indent by spaces, not by tabs$"),
    "no-port": ("fleet: {metrics: {address: localhost}}", "'localhost' has no port; write HOST:PORT"),
    "no-host": ("fleet: {metrics: {address: ':80'}}", "':80' has no host; write HOST:PORT"),
    "no-file": ("include: [{file: gone.yaml}]", r":1:18: include: .*gone\.yaml"),
    "itself": (
        "include: [{file: ringfence.yaml}]",
        "the files include each other: ringfence.yaml -> ringfence.yaml",
    ),
    "nameless": ("include: [{file: sub.yaml}]", r"sub\.yaml.* this included file has no name"),
    "override": ("include: [{file: sub.yaml, name: s, overrides: {agent: {}}}]", "there is no key 'agent'"),
    "two-keys-of-the-inbox": (
        """\
fleet: {webhooks: {address: '127.0.0.1:1'}, inbox: {secret: '${secret:k}'}}
agents: {a: {secrets: {k: 'env:A'}}, b: {secrets: {k: 'env:B'}}}""",
        r"agents\.b\.secrets\.k: `fleet\.inbox\.secret` uses secret 'k', for which agent 'a' has another source",
    ),
    "no-such-agent": (
        "include: [{file: sub.yaml, name: s, overrides: {agents: {b: {}}}}]",
        "has no agent 'b'; it has a",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_are_told_at_their_place(load: Load, case: str):
    """Each error is one line with the place, the value, and the remedy."""
    text, expected = WRONG[case]
    with pytest.raises(ConfigurationError, match=expected):
        load(text + "\n", sub="agents: {a: {}}\n")


def test_the_mistakes_of_all_agents_are_reported_at_once(load: Load):
    """One error lists the mistakes of all agents, whichever check finds them."""
    text = (
        "agents:\n  a: {limits: {turns: lots}}\n  b: {prompt: '${NOPE}', sandbox: {mmode: clone}}\n"
        "  c: {triggers: {t: {type: github, repository: a/b, token: plain}}}\n"
    )
    with pytest.raises(ConfigurationError) as caught:
        load(text)
    for place in (
        ":2:23: agents.a.limits.turns",
        ":3:15: agents.b.prompt",
        ":4:60: agents.c.triggers.t.token",
    ):
        assert place in str(caught.value), str(caught.value)


def test_an_included_file_cannot_bound_the_crew(load: Load):
    """A setting of the whole fleet in an included file, which would have no effect, is refused."""
    for include in ("{file: sub.yaml}", "{file: sub.yaml, name: s}"):
        with pytest.raises(
            ConfigurationError, match=r"sub\.yaml:1:18: fleet\.budget: it has no effect in an included file"
        ):
            load(f"include: [{include}]\n", sub="fleet: {name: s, budget: {tokens: 5}}\nagents: {a: {}}\n")
    with pytest.raises(ConfigurationError, match=r"sub\.yaml:1:9: fleet\.budgt: .* did you mean 'budget'"):
        load("include: [{file: sub.yaml, name: s}]\n", sub="fleet: {budgt: {tokens: 5}}\nagents: {a: {}}\n")


def test_an_override_may_put_a_key_out_of_effect(load: Load):
    """An override that leaves a key of the included file without effect is no error."""
    fleet = load(
        "include: [{file: sub.yaml, overrides: {agents: {a: {session: {policy: fresh}, retry: {attempts: 1}}}}}]\n",
        sub="fleet: {name: s}\nagents: {a: {session: {policy: resume, within: 1h}, retry: {backoff: 1s}}}\n",
    )
    assert fleet.agents["s.a"].settings.session.policy == "fresh"


def test_two_agents_of_one_name(load: Load):
    """Two includes that lead to one qualified name are refused, with the place of the second."""
    with pytest.raises(ConfigurationError, match=r"there are two agents 's\.a'"):
        load(
            "include: [{file: s.yaml}, {file: t.yaml, name: s}]\n",
            s="fleet: {name: s}\nagents: {a: {}}\n",
            t="agents: {a: {}}\n",
        )


def test_what_changed(load: Load):
    """The difference between two configurations is reported by keys, as they are written."""
    before = load("agents: {a: {priority: 1}, b: {}}\n")
    after = load("agents: {a: {priority: 2, prompt: x}}\nfleet: {workers: 3}\n")
    assert differences(before, after)[:3] == [
        "agents.a.priority: was 1, is 2",
        "agents.a.prompt: is 'x'",
        f"agents.b.workspace: was '{before.file.parent}'",
    ]


def test_what_a_reload_does_not_change_is_said(load: Load):
    """A changed value that a daemon reads only at its start is marked as such."""
    before, after = (load(f"fleet: {{workers: {count}, drain: {count}s}}\n") for count in (1, 2))
    assert differences(before, after) == [
        "fleet.drain: was 1.0, is 2.0",
        "fleet.workers: was 1, is 2 (from the next start on)",
    ]


def test_every_value_knows_its_place(load: Load):
    """Each value that is not a default is listed with the place that sets it."""
    fleet = load("limits: {turns: 9}\nagents: {a: {priority: 1}}\nfleet: {workers: 2}\n")
    found = {each.key: str(each.origin).rpartition("/")[2] for each in explicit_values(fleet)}
    assert found["agents.a.limits.turns"] == "ringfence.yaml:1:17"
    assert found["agents.a.priority"] == "ringfence.yaml:2:24"
    assert found["fleet.workers"] == "ringfence.yaml:3:18"
