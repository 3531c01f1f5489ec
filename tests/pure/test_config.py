"""The documents' checkpoint block loads as it is; what is not known is an error with its path, what has no force is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ipyagent_sessions import config
from ipyagent_sessions.errors import ConfigError

DOCUMENT = """\
checkpoint:
  # 自动检查点触发条件
  triggers:
    # 时间触发
    - type: time_interval
      interval: 5m  # 每5分钟

    # 事件触发
    - type: event
      events:
        - activity_completed
        - external_api_called
        - file_written

    # 状态变化触发
    - type: state_change
      paths:
        - business_state.current_goal
        - execution_state.active_activities

  # 检查点内容
  include:
    - full_state: true          # 完整状态
    - event_history: last_100   # 最近100个事件
    - generated_artifacts: references  # 产物引用

  # 存储配置
  storage:
    type: distributed_storage  # 分布式存储
    backend: s3  # 或 GCS, Azure Blob
    replication: 3  # 副本数

  # 保留策略
  retention:
    successful: 7d  # 成功任务保留7天
    failed: 30d  # 失败任务保留30天
"""


def of(text: str) -> config.CheckpointPolicy:
    return config.checkpoint_policy(yaml.safe_load(text))


def test_the_documents_block_loads_unchanged() -> None:
    policy = of(DOCUMENT)
    assert policy.interval_s == 300
    assert policy.events == ("ActivityCompleted", "external_api_called", "FileWritten")
    assert policy.paths == ("business_state.current_goal", "execution_state.active_activities")
    assert policy.last_events == 100
    assert (policy.successful_s, policy.failed_s) == (7 * 86400, 30 * 86400)


def test_settings_without_force_are_reported_with_their_path() -> None:
    assert [text.split(": ")[0] for text in of(DOCUMENT).not_in_force] == [
        "checkpoint.storage.type",
        "checkpoint.storage.backend",
        "checkpoint.storage.replication",
    ]
    assert of("checkpoint: {storage: {type: local, backend: local, replication: 1}}").not_in_force == ()
    assert of("checkpoint: {retention: {failed: 1d}}").not_in_force == ()
    assert of("checkpoint: {include: [{full_state: false}]}").not_in_force[0].startswith("checkpoint.include[0].full_state")


def test_no_block_gives_the_defaults() -> None:
    assert config.checkpoint_policy({}) == config.CheckpointPolicy()
    assert of("checkpoint: {}") == config.CheckpointPolicy()


WRONG = {
    "checkpoints: {}": "(top).checkpoints: unknown key",
    "checkpoint: {trigger: []}": "checkpoint.trigger: unknown key",
    "checkpoint: {triggers: [{type: time_interval, every: 5m}]}": "checkpoint.triggers[0].every: unknown key",
    "checkpoint: {triggers: [{type: time_interval}, {type: steps}]}": "checkpoint.triggers[1].type: 'steps' is not known",
    "checkpoint: {triggers: [{type: [time_interval]}]}": "checkpoint.triggers[0].type",
    "checkpoint: {triggers: [{type: time_interval, interval: 5 parsecs}]}": "checkpoint.triggers[0].interval: '5 parsecs'",
    "checkpoint: {triggers: [{type: time_interval, interval: -5}]}": "checkpoint.triggers[0].interval: -5",
    "checkpoint: {triggers: [{type: time_interval, interval: .nan}]}": "checkpoint.triggers[0].interval: nan",
    "checkpoint: {triggers: [{type: time_interval, interval: true}]}": "checkpoint.triggers[0].interval: True is not",
    "checkpoint: {triggers: [{type: event, interval: 5m}]}": "checkpoint.triggers[0].interval: unknown key",
    "checkpoint: {triggers: [{type: event, events: [a_b]}]}": "checkpoint.triggers[0].events[0]: 'a_b'",
    "checkpoint: {triggers: [{type: event, events: [[x]]}]}": "checkpoint.triggers[0].events[0]",
    "checkpoint: {triggers: [{type: state_change, paths: [business.goal]}]}": "checkpoint.triggers[0].paths[0]: 'business",
    "checkpoint: {triggers: [{type: time_interval, interval: 0s}]}": "checkpoint.triggers[0].interval: '0s' is no time",
    "checkpoint: {triggers: [{type: time_interval, interval: 0}]}": "checkpoint.triggers[0].interval: 0 is no time",
    "checkpoint: {triggers: [{type: time_interval}, {type: time_interval, interval: 9m}]}": "checkpoint.triggers[1]: a second",
    "checkpoint: {triggers: [{type: event}]}": "checkpoint.triggers[0].events: names nothing",
    "checkpoint: {triggers: [{type: state_change, paths: []}]}": "checkpoint.triggers[0].paths: names nothing",
    "checkpoint: {triggers: 5m}": "checkpoint.triggers: must be a list, not str",
    "checkpoint: {include: [{event_history: all}]}": "checkpoint.include[0].event_history: 'all' is not known",
    "checkpoint: {include: [{event_history: last_100000}]}": "checkpoint.include[0].event_history",
    f"checkpoint: {{include: [{{event_history: last_{'9' * 5000}}}]}}": "checkpoint.include[0].event_history",
    "checkpoint: {include: [{generated_artifacts: copies}]}": "checkpoint.include[0].generated_artifacts",
    "checkpoint: {include: 0}": "checkpoint.include: must be a list, not int",
    "checkpoint: {include: [{full_state: 7}]}": "checkpoint.include[0].full_state: 7 is not known",
    "checkpoint: {include: [{full_state: null}]}": "checkpoint.include[0].full_state: None is not known",
    "checkpoint: {storage: false}": "checkpoint.storage: must be a mapping, not bool",
    "checkpoint: {storage: {type: 7}}": "checkpoint.storage.type: must be a text, not int",
    "checkpoint: {storage: {backend: [1]}}": "checkpoint.storage.backend: must be a text, not list",
    "checkpoint: {storage: {bucket: x}}": "checkpoint.storage.bucket: unknown key",
    "checkpoint: {storage: {replication: three}}": "checkpoint.storage.replication: 'three' is not a number",
    "checkpoint: {retention: {forever: 1d}}": "checkpoint.retention.forever: unknown key",
    "checkpoint: {retention: {failed: soon}}": "checkpoint.retention.failed: 'soon' is not a duration",
    f"checkpoint: {{retention: {{failed: {'9' * 400}}}}}": "checkpoint.retention.failed: 999",
    f"checkpoint: {{retention: {{failed: {'9' * 400}d}}}}": "checkpoint.retention.failed: '999",
    "checkpoint: [1]": "checkpoint: must be a mapping, not list",
    "just text": "(top): must be a mapping, not str",
    "[]": "(top): must be a mapping, not list",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_not_known_is_an_error_that_names_its_path(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        of(text)
    assert raised.value.message.startswith(WRONG[text])


@pytest.mark.parametrize(
    ("value", "wanted"),
    [("5m", 300), ("500ms", 0.5), ("2h", 7200), ("7d", 604800), ("60", 60), (90, 90.0), ("1.5 min", 90), (0, 0)],
)
def test_durations_are_seconds_or_text_with_a_unit(value: Any, wanted: float) -> None:
    assert config.seconds(value, "x") == wanted


def test_a_file_with_a_byte_order_mark_and_crlf_loads(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + DOCUMENT.replace("\n", "\r\n").encode())
    assert config.load(path) == of(DOCUMENT)
    path.write_bytes(b"# nothing\n")
    assert config.load(path) == config.CheckpointPolicy()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"checkpoint:\n  - [", "not valid YAML: line 2, column 6: expected the node content"),
        (b"a: \x00", "not valid YAML: unacceptable character #x0000"),
        (b"[" * 5000, "nested too deeply to be read"),
        (b"checkpoint: 2026-13-45", "not valid YAML: month must be in 1..12"),
        (b"checkpoint: " + b"9" * 5000, "not valid YAML: Exceeds the limit"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"checkpoint: {}\nmemory: {}\ncheckpoint: {}", "line 3, column 1: 'checkpoint' stands there again"),
        (b"a: &a\n  - x: {b: 1, c: 2, b: 3}\nd: *a", "line 2, column 21: 'b' stands there again"),
        (b'"\\n": 1\n"\\n": 2', "line 2, column 1: '\\n' stands there again"),
        (b"checkpoint: {x: 1}", "checkpoint.x: unknown key"),
        (b"[]", "must be a mapping, not list"),
        (b"0", "must be a mapping, not int"),
    ],
)
def test_a_file_that_is_wrong_is_named_in_one_line(tmp_path: Path, body: bytes, says: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(body)
    with pytest.raises(ConfigError) as raised:
        config.load(path)
    assert raised.value.message.startswith(f"{path}: ")
    assert says in raised.value.message
    assert "\n" not in str(raised.value)


def test_what_is_no_file_is_not_the_same_as_none(tmp_path: Path) -> None:
    (tmp_path / "ipyagent.yaml").mkdir()
    path = config.project_file(tmp_path)
    assert path is not None
    with pytest.raises(ConfigError, match=r"ipyagent\.yaml: cannot be read: it is no file; rename it"):
        config.load(path)
    path.rmdir()
    path.symlink_to("nowhere")
    assert config.project_file(tmp_path) == path
    with pytest.raises(ConfigError, match="cannot be read"):
        config.load(path)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml"):
        config.load(tmp_path / "absent.yaml")


def test_the_store_is_where_the_environment_says_or_in_jupyter_s_data_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("IPYAGENT_STORE", str(tmp_path / "here"))
    assert config.store_path() == tmp_path / "here"
    monkeypatch.delenv("IPYAGENT_STORE")
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    assert config.store_path() == tmp_path / "jupyter" / "ipyagent"
    monkeypatch.delenv("JUPYTER_DATA_DIR")
    pytest.importorskip("jupyter_core")
    from jupyter_core.paths import jupyter_data_dir

    assert config.store_path() == Path(jupyter_data_dir()) / "ipyagent"
