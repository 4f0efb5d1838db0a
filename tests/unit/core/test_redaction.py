import pytest

from compatcheck.core.redaction import leave_out_words, redact, redact_command, redact_lines, redact_variable
from tests.effort import at_most


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://user:pass@host/simple", "https://[redacted]@host/simple"),
        ("git+ssh://git@github.com/a/b.git@v1", "git+ssh://[redacted]@github.com/a/b.git@v1"),
        ("FROM u:p@host:5000/x", "FROM [redacted]@host:5000/x"),
        ("FROM python:3.11@sha256:ab/x", "FROM python:3.11@sha256:ab/x"),
        ("https://host/x?token=abc&y=1", "https://host/x?token=[redacted]&y=1"),
        ("https://host/x?X-Amz-Signature=abc", "https://host/x?X-Amz-Signature=[redacted]"),
        ("hf_abcdefghijklmnopqrstu", "[redacted]"),
        ("Authorization: Bearer abcdefgh1234", "Authorization: Bearer [redacted]"),
        ("/data/hf_cache", "/data/hf_cache"),
        ("https://host/a@b", "https://host/a@b"),
        ("https://me:p@ss@host/simple", "https://[redacted]@host/simple"),
        *(
            (f"https://host/x{sign}{name}=abc", f"https://host/x{sign}{name}=[redacted]")
            for sign, name in (("?", "private_token"), ("&", "job_token"), ("?", "client_secret"), ("#", "token"))
        ),
    ],
)
def test_redact(text, expected):
    assert redact(text) == expected


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "DB_PASSWORD",
        "MY_SECRET",
        "ACCESSTOKEN",
        "hfToken",
        "GITHUB_PAT",
        "X_PASS",
        "AZURE_STORAGE_CONNECTION_STRING",
        "SLACK_WEBHOOK",
    ],
)
def test_secret_variables_are_hidden_whole(name):
    assert redact_variable(name, "anything") == "[redacted]"


@pytest.mark.parametrize(
    ("name", "value"),
    [("TOKENIZERS_PARALLELISM", "false"), ("PWD", "/data"), ("NCCL_DEBUG", "INFO"), ("HF_TOKEN", ""), ("MONKEY", "x")],
)
def test_other_variables_stay(name, value):
    assert redact_variable(name, value) == value


def test_tokens_of_conda_channels_are_hidden() -> None:
    url = "https://conda.anaconda.org/t/ab-0123-secret/private/linux-64/a-1-0.conda"
    assert redact(url) == "https://conda.anaconda.org/t/[redacted]/private/linux-64/a-1-0.conda"
    assert redact("/usr/t/ab/x") == "/usr/t/ab/x"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("env A=1 HF_TOKEN=abc python", "env A=1 HF_TOKEN=[redacted] python"),
        ("sh -c export 'API_KEY=abc;' x", "sh -c export 'API_KEY=[redacted] x"),
        ("x --token abc --lr=1", "x --token [redacted] --lr=1"),
        ("x --password=abc y", "x --password=[redacted] y"),
        ("x --use-auth --lr 1", "x --use-auth --lr 1"),
        ("x https://u:p@h/?b=c", "x https://[redacted]@h/?b=c"),
    ],
)
def test_values_of_secrets_on_a_command_line_are_hidden(text, shown):
    assert redact_command(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "retry HF_TOKEN=SECRET torchrun a.py  --hub_token SECRET --wandb_api_key='SECRET WORDS'",
        "ENV HF_TOKEN SECRET",
        "curl -u me:SECRET h; curl --user 'me:SECRET' h",
        'wandb.login(key="SECRET")',
        'os.environ["HF_TOKEN"] = "SECRET"',
        "  hub_token: SECRET",
        ' "api_key": "SECRET", "password" : "SECRET"',
        "--signing_key SECRET --private-key=SECRET --input_key SECRET --wandb_key SECRET",
        "https://u:SECRET@h/x",
    ],
)
def test_secrets_of_a_file_are_hidden_where_they_stand(text: str) -> None:
    shown = redact_lines(text)
    assert "SECRET" not in shown
    assert "[redacted]" in shown
    assert len(shown.split("  ")) == len(text.split("  "))


def test_what_opens_something_is_hidden_however_plain_it_is() -> None:
    assert redact_lines("--api_key hunter --secret-key=hunter").count("[redacted]") == 2


@pytest.mark.parametrize(
    "text",
    [
        'TOKEN="$HF_TOKEN" --max_new_tokens 512 max_tokens=512 use_auth_token=True',
        "tokenizer.pad_token = tokenizer.eos_token",
        'pad_token="<pad>"',
        "def load(token: str | None = None, key=len): sorted(x, key=lambda y: y)",
        "docker run -u 1000:1000 image --token",
        "deepspeed==0.16.4 --hash=sha256:00",
        "A_TOKEN=\n+B=1\n--token\n+x",
        "openrlhf --input_key question --label_key answer --input-key=prompt",
        "data:\n  prompt_key: prompt\n  image_key: images",
    ],
)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert redact_lines(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("$(curl -H SECRET x)/a $(b SECRET)", "$(curl …)"),
        ("a<(cat SECRET", "a<(cat SECRET"),
        ("a) $(cat SECRET", "a) $(cat SECRET"),
        ("x>( tee SECRET)y`id SECRET`", "x>(tee …)y`id …`"),
        ("$(SECRET)", "$(SECRET …)"),
    ],
)
def test_of_a_command_in_a_word_its_program_stays(text: str, shown: str) -> None:
    assert leave_out_words(text) == shown


@pytest.mark.parametrize(
    "text", ["eyJaaaaaaaaaa.bbbbbbbbbb.c-", "-eyJ-eyJaaaaaaaaaa.bbbbbbbbbb.c", "x.eyJaaaaaaaaaa.bbbbbbbbbb.eyJa"]
)
def test_a_web_token_is_hidden_whole_wherever_its_word_begins(text: str) -> None:
    assert redact(text).removeprefix("x.").removeprefix("-") == "[redacted]"


@pytest.mark.parametrize(
    "unit", ["-eyJaaaaaaaaaa", "u:a,", "a.b:", "u:a@h.", "eyJ", "-eyJaaaaaaaaaa.", "$(a ", "<(a", "`a "]
)
def test_a_long_word_is_looked_through_once(unit: str) -> None:
    with at_most(2):
        redact(unit * 20_000)
        leave_out_words(f"){unit * 20_000}")
