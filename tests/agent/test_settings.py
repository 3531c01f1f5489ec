"""Settings come in layers, keep references as references, and say where each value is from."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipyagent_sessions.agent.sections import Allowance
from ipyagent_sessions.agent.settings import Settings
from ipyagent_sessions.errors import ConfigError

CANARY = "canary-5e1f-0001"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    return folder


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "user.yaml").write_text("")
    return {"IPYAGENT_CONFIG": str(tmp_path / "user.yaml")}


def load(project: Path, environ: dict[str, str], text: str = "", user: str = "") -> Settings:
    (project / "ipyagent.yaml").write_text(text)
    Path(environ["IPYAGENT_CONFIG"]).write_text(user)
    return Settings.load(project, environ)


def test_without_files_the_defaults_are_in_force(project: Path, environ: dict[str, str]) -> None:
    settings = Settings.load(project, environ)
    assert settings.model is None
    assert settings.permissions.answer("anything", "irreversible") == "ask"
    assert settings.permissions.answer("anything", "none") == "auto"
    assert settings.budget.task == Allowance(steps=100)


def test_the_project_goes_before_the_user_key_by_key(project: Path, environ: dict[str, str]) -> None:
    user = "model: openai:a\nbudget: {task: {usd: 1, tokens: 50k}}\nsecrets: [ONE]\npermissions: {tools: {shell: never}}"
    text = "model: openai:b\nbudget: {task: {usd: 2}, session: {time: 2h}}\nsecrets: [TWO]"
    settings = load(project, environ, text, user)
    assert settings.model == "openai:b"
    assert settings.budget.task == Allowance(usd=2.0, tokens=50_000, steps=100)
    assert settings.budget.session == Allowance(time_s=7200.0)
    assert settings.secrets == ("ONE", "TWO")
    assert settings.permissions.answer("shell", "none") == "never"


def test_an_entry_of_models_or_mcp_is_taken_whole(project: Path, environ: dict[str, str]) -> None:
    user = (
        "mcp: {files: {command: a, args: [b], effects: {read: none}}}\nmodels: {m: {provider: openai, name: x, base_url: u}}"
    )
    text = "mcp: {files: {url: 'https://example.org'}}\nmodels: {m: {provider: anthropic, name: y}}"
    settings = load(project, environ, text, user)
    assert settings.mcp["files"].command is None
    assert settings.mcp["files"].effects == {}
    assert settings.models["m"].base_url is None


def test_the_project_file_is_found_above_up_to_the_root_of_the_checkout(
    project: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    deep = project / "a" / "b"
    deep.mkdir(parents=True)
    (project.parent / "ipyagent.yaml").write_text("model: openai:above")
    assert Settings.load(deep, environ).model is None
    (project / "ipyagent.yaml").write_text("model: openai:root")
    assert Settings.load(deep, environ).model == "openai:root"
    (deep / "ipyagent.yaml").write_text("model: openai:near")
    assert Settings.load(deep, environ).model == "openai:near"


def test_outside_a_checkout_only_the_folder_itself_counts(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "ipyagent.yaml").write_text("model: openai:left-by-somebody")
    (tmp_path / "work").mkdir()
    assert Settings.load(tmp_path / "work", environ).model is None
    assert Settings.load(tmp_path, environ).model == "openai:left-by-somebody"


def test_a_change_of_a_file_is_seen_by_the_next_load(project: Path, environ: dict[str, str]) -> None:
    assert load(project, environ, "model: openai:a").model == "openai:a"
    assert load(project, environ, "model: openai:b").model == "openai:b"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("modle: x", "(top).modle: unknown key; did you mean model?"),
        ("models: {m: {provider: opena, name: x}}", "models.m.provider: 'opena' is not known"),
        ("models: {m: {provider: openai}}", "models.m: name is missing"),
        ("models: {m: {provider: openai, name: x, url: y}}", "models.m.url: unknown key"),
        ("models: {'a:b': {provider: openai, name: x}}", "models.a:b: a name of your own has no colon"),
        ("models: {m: {provider: openai, name: x, timeout: soon}}", "models.m.timeout: 'soon' is not a duration"),
        ("models: []", "models: must be a mapping"),
        ("mcp: {a b: {command: x}}", "mcp: 'a b' is no name for a server"),
        ("mcp: {s: {}}", "mcp.s: an MCP server has either a command or a url"),
        ("mcp: {s: {command: a, url: b}}", "mcp.s: an MCP server has either a command or a url"),
        ("mcp: {s: {command: a, headers: {x: y}}}", "mcp.s.headers: has no meaning beside command"),
        ("mcp: {s: {command: a, args: [true]}}", "mcp.s.args[0]: must be a text"),
        ("mcp: {s: {command: a, effects: {t: harmless}}}", "mcp.s.effects.t: 'harmless' is not known; none, idempotent"),
        ("permissions: {effects: {irreversible: yes}}", "permissions.effects.irreversible: True is not known"),
        ("permissions: {effects: {big: ask}}", "permissions.effects.big: 'big' is not known"),
        ("permissions: {tools: {shell: always}}", "permissions.tools.shell: 'always' is not known"),
        ("budget: {task: {usd: lots}}", "budget.task.usd: 'lots' is not an amount"),
        ("budget: {task: {usd: .nan}}", "budget.task.usd: nan is not an amount"),
        ("budget: {session: {tokens: -1}}", "budget.session.tokens: -1 is not a number"),
        (f"budget: {{task: {{usd: {'9' * 400}}}}}", "is not an amount of money"),
        (f"budget: {{task: {{steps: {'9' * 400}}}}}", "is not a number"),
        ("budget: {usd: 1}", "budget.usd: unknown key"),
        ("tools: {without: shell}", "tools.without: must be a list"),
        ("model: 5", "model: must be a text"),
        ("secrets: {a: b}", "secrets: must be a list"),
        ("- a", "must hold a mapping, not list"),
        ("a: [", "not valid YAML: line 1, column 5: expected the node content"),
        ("[" * 5000, "nested too deeply to be read"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_path(project: Path, environ: dict[str, str], text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(project, environ, text)
    assert str(project / "ipyagent.yaml") in str(caught.value)
    assert says in str(caught.value)
    with pytest.raises(ConfigError, match=r"user\.yaml"):
        load(project, environ, "", user=text)


def test_a_file_that_the_variable_names_has_to_exist(project: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"IPYAGENT_CONFIG names .*absent\.yaml, which is not a file"):
        Settings.load(project, {"IPYAGENT_CONFIG": str(tmp_path / "absent.yaml")})


def test_a_reference_is_kept_and_looked_up_on_use(project: Path, environ: dict[str, str]) -> None:
    text = "mcp: {gh: {url: 'https://${HOST}/mcp', headers: {Authorization: 'Bearer ${GH_PAT}'}}}"
    settings = load(project, environ, text)
    assert settings.mcp["gh"].headers["Authorization"] == "Bearer ${GH_PAT}"
    server = settings.server("gh", {"HOST": "example.org", "GH_PAT": CANARY})
    assert server.url == "https://example.org/mcp"
    assert server.headers == {"Authorization": f"Bearer {CANARY}"}
    with pytest.raises(ConfigError) as caught:
        settings.server("gh", {"HOST": "example.org"})
    said = str(caught.value)
    assert str(project / "ipyagent.yaml") in said
    assert "mcp.gh.headers.Authorization" in said
    assert "GH_PAT" in said


def test_a_reference_in_a_command_and_its_environment_is_looked_up_too(project: Path, environ: dict[str, str]) -> None:
    settings = load(project, environ, "mcp: {s: {command: '${BIN}/run', args: ['-k', '${K}'], env: {KEY: '${K}'}}}")
    server = settings.server("s", {"BIN": "/opt", "K": "v"})
    assert (server.command, server.args, server.env) == ("/opt/run", ["-k", "v"], {"KEY": "v"})


def test_every_value_says_which_layer_it_is_from(project: Path, environ: dict[str, str]) -> None:
    settings = load(project, environ, "model: openai:b\nsecrets: [TWO]", user="model: openai:a\nsecrets: [ONE]")
    rows = {row.path: row for row in settings.explained({})}
    assert rows["model"].value == "openai:b"
    assert rows["model"].source == str(project / "ipyagent.yaml")
    assert rows["permissions.effects.irreversible"] == ("permissions.effects.irreversible", "ask", "default")
    assert rows["secrets"].value == "ONE, TWO"
    assert rows["secrets"].source == f"{environ['IPYAGENT_CONFIG']} + {project / 'ipyagent.yaml'}"


def test_no_secret_is_shown(project: Path, environ: dict[str, str]) -> None:
    text = f"""
secrets: [MINE]
model: openai:{CANARY}-mine
mcp:
  a: {{url: 'https://me:{CANARY}@example.org', headers: {{X-Api-Key: {CANARY}-literal, B: '${{REF}}'}}}}
"""
    settings = load(project, environ, text)
    variables = {"MINE": f"{CANARY}-mine", "REF": f"{CANARY}-ref"}
    shown = "\n".join(map(str, settings.explained(variables)))
    assert CANARY not in shown
    assert "${REF}" in shown
    assert "<secret mcp.a.headers.X-Api-Key>" in shown
    assert CANARY not in repr(settings.known_secrets(variables))


def test_known_secrets_are_keys_named_and_referred_variables_but_no_paths(project: Path, environ: dict[str, str]) -> None:
    text = """
secrets: [MINE]
models: {m: {provider: openai, name: x, base_url: 'http://${HOST}', api_key_env: OTHER}}
mcp: {a: {command: run, env: {TOKEN: '${REF}', HOME: '${HOME}'}}}
"""
    settings = load(project, environ, text)
    names = ("MINE", "OTHER", "REF", "HOME", "HOST", "OPENAI_API_KEY", "HF_TOKEN", "SHORT_TOKEN", "GREETING")
    variables = {name: f"{name.lower()}-{CANARY}" for name in names} | {"SHORT_TOKEN": "off"}
    assert settings.known_secrets(variables).names == ("HF_TOKEN", "MINE", "OPENAI_API_KEY", "OTHER", "REF")
