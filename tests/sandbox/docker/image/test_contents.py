"""Contents of the images as an agent sees them: no network, no capability, a read-only system."""

import pytest

from ringfence.sandbox.docker.image.recipe import Target
from ringfence.sandbox.docker.image.store import find_image

pytestmark = [pytest.mark.docker, pytest.mark.slow]

JAVA = (
    'class Main { record Point(int x) {} public static void main(String[] a) { System.out.print("java"); } }'
)


@pytest.mark.parametrize("target", Target)
async def test_images_are_within_their_size_budget(engine, image_of, target):
    """The size that the engine measures is within the budget."""
    image = await find_image(engine, await image_of(target))
    assert image.is_within_budget, f"{image.size_bytes} of {image.budget_bytes}"


@pytest.mark.parametrize("target", Target)
async def test_nobody_is_root(run, target):
    """Commands run as an ordinary user that has a name and a home."""
    assert await run(target, "id -un; id -u; cd; pwd") == (0, "agent\n1000\n/home/agent\n")


@pytest.mark.parametrize("target", Target)
async def test_nothing_is_left_of_the_build(run, target):
    """No package lists, logs or caches of the build are in the image."""
    places = "/var/lib/apt/lists /var/cache/apt /var/log /root/.npm /root/.cache /tmp"
    script = f"find {places} -type f -size +0 2> /dev/null || true"
    assert await run(target, script, user="0:0", Tmpfs={}) == (0, "")


async def test_base_holds_what_every_agent_needs(run):
    """bash, git, python3, ripgrep, jq and the authorities are in the image."""
    script = (
        "git init -q /tmp/w; cd /tmp/w; echo needle > f; rg -l needle; echo '{\"a\":1}' | jq .a; "
        "python3 -c 'import ssl; print(len(ssl.create_default_context().get_ca_certs()) > 100)'"
    )
    assert await run(Target.BASE, script) == (0, "f\n1\nTrue\n")


async def test_polyglot_speaks_its_languages(run):
    """Node 20 or newer, npm, Maven, pip and venv work; Java compiles and runs code for version 17."""
    script = (
        f"cd /tmp; echo '{JAVA}' > Main.java; javac --release 17 Main.java; java Main; "
        "node -e 'console.log(Number(process.versions.node.split(`.`)[0]) >= 20)'; "
        "npm --version > /dev/null; mvn --version > /dev/null; "
        "python3 -m venv v; v/bin/python -m pip --version > /dev/null"
    )
    assert await run(Target.POLYGLOT, script) == (0, "javatrue\n")


async def test_operator_has_its_tools(run):
    """Each tool of the operator is on the PATH, and its Python packages can be imported."""
    tools = "curl wget jq vim git nc dig nslookup ping htop tcpdump traceroute nmap ps top free docker rg python3 pip"
    script = (
        f"for tool in {tools}; do command -v $tool > /dev/null || echo $tool; done; "
        "python3 -c 'import anthropic, httpx, numpy, pandas, prometheus_client, redis, yaml'"
    )
    assert await run(Target.OPERATOR, script) == (0, "")


async def test_what_needs_net_raw_says_so(run):
    """Without the capability ping, plain traceroute and connecting scans work; listening on an interface fails."""
    works = "traceroute -n 127.0.0.1 > /dev/null; nmap -sT -Pn -p 9 127.0.0.1 > /dev/null"
    assert await run(Target.OPERATOR, works) == (0, "")
    code, said = await run(Target.OPERATOR, "tcpdump -c 1 -i lo")
    assert code != 0
    assert "permission" in said


async def test_net_raw_is_what_it_needs(run):
    """With the capability that the list names, the refused tool listens."""
    script = "timeout 20 tcpdump -Z root -c 1 -i lo & sleep 1; ping -c 2 127.0.0.1 > /dev/null; wait $!"
    code, said = await run(Target.OPERATOR, script, CapAdd=["NET_RAW"], user="0:0")
    assert (code, "listening on lo" in said) == (0, True), said


async def test_agents_are_there_with_their_versions(run):
    """The agents' programs start without a network, in the pinned versions."""
    code, said = await run(Target.AGENTS, "claude --version; codex --version")
    assert code == 0, said
    assert "2.1.329" in said
    assert "0.169.0" in said
