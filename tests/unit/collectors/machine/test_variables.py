import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatcheck.collectors.machine.variables import attach, collect_variables, parse_allocator, read_env_file
from compatcheck.core.environment import Environment
from compatcheck.core.errors import InputError
from compatcheck.core.source import Source

SOURCE = Source("environment")


def facts(environ):
    return {name: value for name, (value, _) in collect_variables(environ, SOURCE).facts.items()}


def test_only_variables_that_matter_are_kept():
    environ = {
        "NCCL_CUMEM_ENABLE": "0",
        "TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
        "HOME": "/home/me",
        "CUBLASLT_WORKSPACE_SIZE": "1",
        "EDITOR": "vi",
    }
    assert set(collect_variables(environ, SOURCE).values) == {
        "NCCL_CUMEM_ENABLE",
        "TORCH_NCCL_AVOID_RECORD_STREAMS",
        "CUBLASLT_WORKSPACE_SIZE",
    }


def test_credentials_are_hidden():
    environ = {
        "HF_TOKEN": "hf_abcdefghijklmnopqrst",
        "HF_ENDPOINT": "https://me:pass@example.org",
        "VLLM_API_KEY": "x",
        "HF_HOME": "/data",
    }
    values = collect_variables(environ, SOURCE).values
    assert values == {
        "HF_TOKEN": "[redacted]",
        "HF_ENDPOINT": "https://[redacted]@example.org",
        "VLLM_API_KEY": "[redacted]",
        "HF_HOME": "/data",
    }


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"])
def test_allocator_facts_under_every_name(name):
    found = collect_variables({name: "expandable_segments:True,max_split_size_mb:128"}, SOURCE).facts
    assert found["allocator.expandable_segments"] == (True, Source("environment", key=name))
    assert found["allocator.max_split_size_mb"][0] == 128


def test_the_newer_name_has_precedence_and_the_other_fills_in():
    environ = {
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,garbage_collection_threshold:0.8",
        "PYTORCH_ALLOC_CONF": "expandable_segments:False",
    }
    assert facts(environ) == {"allocator.expandable_segments": False, "allocator.garbage_collection_threshold": 0.8}


def test_limits_of_page_locked_memory():
    environ = {"PYTORCH_ALLOC_CONF": "pinned_max_round_threshold_mb:64,pinned_max_cached_size_mb:128"}
    assert facts(environ) == {
        "allocator.expandable_segments": False,
        "allocator.pinned_max_round_threshold_mb": 64,
        "allocator.pinned_max_cached_size_mb": 128,
    }
    assert not collect_variables(environ, SOURCE).skipped


def test_options_without_end_are_said_up_to_a_hundred():
    text = "max_split_size_mb:32," + ",".join(f"o{number}:1" for number in range(20_000))
    options, skipped = parse_allocator(text, SOURCE)
    assert options == {"max_split_size_mb": 32}
    assert len(skipped) == 101
    assert "the 19,900 behind them were not read" in skipped[-1].reason


def test_every_option():
    text = (
        "backend:native, roundup_power2_divisions:[256:1,512:2,1024:4,>:8], pinned_num_register_threads:8,"
        "pinned_use_background_threads:True,garbage_collection_threshold:0.6,max_split_size_mb:20,"
    )
    options, skipped = parse_allocator(text, SOURCE)
    assert skipped == []
    assert options["roundup_power2_divisions"] == (("256", 1), ("512", 2), ("1024", 4), (">", 8))
    assert options["garbage_collection_threshold"] == 0.6
    assert parse_allocator("roundup_power2_divisions:4", SOURCE)[0] == {"roundup_power2_divisions": 4}
    assert parse_allocator("", SOURCE) == ({}, [])


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        ("expandable_segments:true", "cannot be 'true'", "in this spelling"),
        ("expandable_segments", "cannot be ''", "True or False"),
        (
            "expandable_segments=True",
            "no allocator option 'expandable_segments=True'",
            "did you mean 'expandable_segments'?",
        ),
        ("expandable_segment:True", "no allocator option", "did you mean 'expandable_segments'?"),
        ("max_split_size_mb:10", "cannot be '10'", "20 or more"),
        ("max_split_size_mb:1.5", "cannot be '1.5'", "whole number"),
        ("garbage_collection_threshold:1.0", "cannot be", "between 0 and 1"),
        ("garbage_collection_threshold:nan", "cannot be", "between 0 and 1"),
        ("roundup_power2_divisions:[256:3]", "cannot be", "power of two"),
        ("roundup_power2_divisions:[256:1", "cannot be", "power of two"),
        ("backend:cudaMalloc", "cannot be", "cudaMallocAsync"),
        (",", "empty option", "options are"),
        ("zzz:1", "no allocator option 'zzz'", "options are"),
    ],
)
def test_malformed_options_name_the_key_and_the_remedy(text, reason, hint):
    options, (skipped, *_) = parse_allocator(text, Source("environment", key="PYTORCH_ALLOC_CONF"))
    assert options == {}
    assert reason in skipped.reason
    assert hint in skipped.hint
    assert "PYTORCH_ALLOC_CONF" in str(skipped.source)


def test_one_bad_option_does_not_lose_the_others():
    options, skipped = parse_allocator("zzz:1,expandable_segments:True", SOURCE)
    assert options == {"expandable_segments": True}
    assert len(skipped) == 1


@given(st.text(alphabet="abc_:,[]> 0123456789TrueFalse.", max_size=40))
def test_any_text_is_parsed_or_reported(text):
    options, skipped = parse_allocator(text, SOURCE)
    assert options or skipped or not text.strip()
    assert all(item.hint for item in skipped)


def test_attached_to_an_environment():
    environment = Environment("x", {}, complete=True, facts={"runtime.torch_cuda": ("12.4", SOURCE)})
    variables = collect_variables({"PYTORCH_ALLOC_CONF": "expandable_segments:True,zzz:1"}, SOURCE)
    attached = attach(environment, variables, complete=True)
    assert attached.variables == {"PYTORCH_ALLOC_CONF": "expandable_segments:True,zzz:1"}
    assert attached.variables_complete
    assert set(attached.facts) == {"runtime.torch_cuda", "allocator.expandable_segments"}
    assert len(attached.skipped) == 1
    assert attached.variables_source == SOURCE


class TestEnvFile:
    def read(self, tmp_path, text):
        path = tmp_path / ".env"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_env_file(str(path))

    def test_forms(self, tmp_path):
        text = (
            "\ufeff# comment\n\nA=1\nexport B=two words\nC='single # not a comment'  # comment\n"
            'D="double"\nE=value # comment\nF=\nG=a=b\n H = spaced \nI=no#comment\r\n'
        )
        expected = {
            "A": "1",
            "B": "two words",
            "C": "single # not a comment",
            "D": "double",
            "E": "value",
            "F": "",
            "G": "a=b",
            "H": "spaced",
            "I": "no#comment",
        }
        assert self.read(tmp_path, text) == expected

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            ("A=1\nnonsense\n", 2),
            ("=1\n", 1),
            ("1A=x\n", 1),
            ("A B=x\n", 1),
            ('A=1\n\nB="open\n', 3),
            ("A='x' y\n", 1),
            ("export A\n", 1),
        ],
    )
    def test_bad_line_is_named(self, tmp_path, text, line):
        with pytest.raises(InputError) as caught:
            self.read(tmp_path, text)
        assert caught.value.source.line == line
        assert caught.value.hint

    def test_not_utf8(self, tmp_path):
        with pytest.raises(InputError, match="not UTF-8"):
            self.read(tmp_path, b"A=\xff\n")

    def test_missing_and_directory(self, tmp_path):
        with pytest.raises(InputError, match="no such file"):
            read_env_file(str(tmp_path / "nope"))
        with pytest.raises(InputError, match="is a directory"):
            read_env_file(str(tmp_path))


@pytest.mark.parametrize(
    ("environ", "segments"),
    [
        ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128"}, False),
        ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, True),
        ({"PYTORCH_ALLOC_CONF": "max_split_size_mb:128", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, True),
        ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segment:True"}, None),
        ({"HF_HOME": "/x"}, None),
    ],
)
def test_what_a_variable_leaves_out_is_off(environ, segments):
    facts = collect_variables(environ, Source("env")).facts
    assert facts.get("allocator.expandable_segments", (None, None))[0] is segments
