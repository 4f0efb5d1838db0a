import pytest

from compatcheck.collectors.image import environments
from compatcheck.collectors.image.environments import read_image
from compatcheck.collectors.image.layouts import MAX_PLACES
from compatcheck.core.redaction import REDACTED
from compatcheck.core.source import Skipped, Source
from tests.effort import at_most
from tests.unit.collectors.image.trees import PROGRAM, To, conda, debian, dist, make_image, python, site, torch, venv

DIST = "/usr/lib/python3/dist-packages"
LOCAL = "/usr/local/lib/python3.11/dist-packages"


def read(files, names=(), **options):
    return read_image(make_image(files, **options), names)


def packages(reading):
    return {
        entry.place.name: {package.name: package.version for package in entry.environment.packages.values()}
        for entry in reading.environments
    }


def started(reading):
    return [entry.place.name for entry in reading.environments if entry.is_started]


def only(reading):
    (entry,) = reading.environments
    return entry.environment


def test_every_environment_is_told_apart_by_its_prefix():
    reading = read(
        {
            **debian(),
            **dist(DIST, "six", "1.16.0"),
            **python("/usr/local", "3.12"),
            **dist(site("/usr/local", "3.12"), "pip", "25.0"),
            **venv("/opt/venv", "/usr/local", "3.12"),
            **torch(site("/opt/venv", "3.12"), "2.6.0+cu124", "12.4"),
            **conda("/opt/conda", "numpy-1.26.4-py311_0"),
            **dist(site("/opt/conda"), "numpy", "1.26.4", installer="conda"),
            **conda("/opt/conda/envs/train", version="3.10"),
            **dist(site("/opt/conda/envs/train", "3.10"), "deepspeed", "0.16.4"),
        }
    )
    assert packages(reading) == {
        "/usr": {"six": "1.16.0"},
        "/usr/local": {"pip": "25.0"},
        "/opt/venv": {"torch": "2.6.0+cu124"},
        "/opt/conda": {"numpy": "1.26.4"},
        "/opt/conda/envs/train": {"deepspeed": "0.16.4"},
    }
    kinds = {entry.place.name: entry.place.kind for entry in reading.environments}
    assert kinds["/opt/venv"] == "venv"
    assert kinds["/opt/conda/envs/train"] == "conda"
    assert kinds["/usr"] == "system"
    assert {entry.name for entry in reading.environments if entry.is_empty} == {"train:1:/usr/local"}
    assert started(reading) == []  # neither a command nor variables


def test_debians_python_sees_what_pip_put_into_usr_local():
    reading = read({**debian(), **dist(DIST, "six", "1.16.0"), **torch(LOCAL, "2.5.1")})
    assert packages(reading) == {"/usr": {"six": "1.16.0", "torch": "2.5.1"}}


def test_debians_python_is_known_by_the_directory_of_pip_alone():
    files = {path: content for path, content in debian().items() if not path.startswith("/usr/lib/python3/")}
    assert packages(read({**files, **torch(LOCAL, "2.5.1")})) == {"/usr": {"torch": "2.5.1"}}


def test_two_pythons_in_one_prefix_are_two_environments():
    reading = read(
        {
            **debian("3.10"),
            "/usr/bin/python3.8": PROGRAM,
            "/usr/lib/python3.8/os.py": PROGRAM,
            **dist(DIST, "six", "1.16.0"),
            **dist("/usr/local/lib/python3.8/dist-packages", "torch", "1.13.1"),
            **dist("/usr/local/lib/python3.10/dist-packages", "torch", "2.5.1"),
        },
        cmd=("python3.8", "train.py"),
    )
    assert packages(reading) == {
        "/usr (python3.8)": {"six": "1.16.0", "torch": "1.13.1"},
        "/usr (python3.10)": {"six": "1.16.0", "torch": "2.5.1"},
    }
    assert started(reading) == ["/usr (python3.8)"]


def test_venv_that_sees_the_systems_packages_has_them():
    reading = read(
        {
            **debian(),
            **dist(DIST, "six", "1.16.0"),
            **torch(LOCAL, "2.5.1"),
            **venv("/opt/venv", "/usr", system=True),
            **dist(site("/opt/venv"), "deepspeed", "0.16.4"),
        },
        env={"PATH": "/opt/venv/bin:/usr/bin"},
    )
    assert packages(reading)["/opt/venv"] == {"deepspeed": "0.16.4", "torch": "2.5.1", "six": "1.16.0"}
    assert started(reading) == ["/opt/venv"]


def test_copies_inside_packages_and_caches_are_no_environments():
    base = python("/usr/local")
    where = site("/usr/local")
    reading = read(
        {
            **base,
            **dist(where, "setuptools", "75.0"),
            **dist(f"{where}/setuptools/_vendor", "packaging", "24.1"),
            **dist(f"{where}/ray/thirdparty_files", "psutil", "6.0"),
            **dist("/home/trainer/.cache/uv/archive-v0/abc", "torch", "2.0.0"),
            **dist("/var/cache/uv/archive-v0/abc", "torch", "2.0.0"),
            "/var/cache/uv/CACHEDIR.TAG": PROGRAM,
            **conda("/opt/conda"),
            **dist("/opt/conda/pkgs/numpy-1.26.4-py311_0/lib/python3.11/site-packages", "numpy", "1.26.4"),
        }
    )
    assert packages(reading) == {"/usr/local": {"setuptools": "75.0"}, "/opt/conda": {}}
    notes = " ".join(reading.notes)
    assert "package cache of conda: /opt/conda/pkgs/numpy-1.26.4-py311_0" in notes
    assert "/home/trainer/.cache/uv/archive-v0/abc" in notes


def test_virtual_environment_that_uv_marked_as_cache_is_one():
    reading = read({**python("/usr/local"), **venv("/app/.venv"), "/app/.venv/CACHEDIR.TAG": PROGRAM})
    assert "/app/.venv" in packages(reading)


def test_directory_of_packages_is_one_and_part_of_others_on_python_path():
    files = {**python("/usr/local"), **torch("/app/lib", "2.5.1"), **dist("/srv/other", "peft", "0.14.0")}
    alone = packages(read(files))
    assert alone == {"/usr/local": {}, "/app/lib": {"torch": "2.5.1"}, "/srv/other": {"peft": "0.14.0"}}
    joined = packages(read(files, env={"PYTHONPATH": "lib"}, folder="/app"))
    assert joined == {"/usr/local": {"torch": "2.5.1"}, "/srv/other": {"peft": "0.14.0"}}


def test_users_own_packages_count_for_the_user_of_the_image():
    home = "/home/trainer/.local/lib/python3.11/site-packages"
    files = {**debian(), **dist(home, "torch", "2.5.1")}
    assert packages(read(files, user="trainer")) == {"/usr": {"torch": "2.5.1"}}
    other = packages(read(files, user="app"))
    assert other == {"/usr": {}, "/home/trainer/.local": {"torch": "2.5.1"}}


def test_links_of_the_image_are_followed_inside_it():
    reading = read(
        {
            **python("/opt/python/3.11.9"),
            "/opt/python/current": To("3.11.9"),
            "/usr/bin/python3": To("/opt/python/current/bin/python3"),
            **dist(site("/opt/python/3.11.9"), "peft", "0.14.0"),
        },
        env={"PATH": "/usr/bin"},
    )
    assert packages(reading) == {"/opt/python/3.11.9": {"peft": "0.14.0"}}
    assert started(reading) == ["/opt/python/3.11.9"]


def test_pip_over_conda_is_found_in_an_image():
    prefix = "/opt/conda"
    folder = f"{prefix}/conda-meta/numpy-1.26.4-py311_0.json"
    reading = read(
        {
            **conda(prefix),
            folder: '{"files": ["lib/python3.11/site-packages/numpy-1.26.4.dist-info/METADATA"]}',
            **dist(site(prefix), "numpy", "2.1.0"),
        }
    )
    (damage,) = only(reading).damage
    assert damage.kind == "pip_over_conda"
    assert damage.sources[0].path == f"train:1:{folder}"


def test_places_are_said_to_be_in_the_image():
    environment = only(read({**python("/usr/local"), **torch(site("/usr/local"), "2.6.0+cu124", "12.4")}))
    assert environment.packages["torch"].source.path.startswith("train:1:/usr/local/lib/")
    assert environment.components["cuda"].source.path.startswith("train:1:/usr/local/lib/")
    assert environment.facts["runtime.torch_cuda"][1].path.startswith("train:1:/")


def test_variables_of_the_image_are_facts_and_secrets_are_hidden():
    image = make_image(
        {**python("/usr/local"), **dist(site("/usr/local"), "peft", "0.14.0")},
        env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "HF_TOKEN": "hf_" + "a" * 30, "FOO": "x"},
    )
    environment = only(read_image(image, ()))
    assert environment.facts["allocator.expandable_segments"][0] is True
    assert environment.variables["HF_TOKEN"] == REDACTED
    assert "FOO" not in environment.variables
    assert environment.variables_source.path == "image configuration"
    assert environment.variables_complete is False


def test_declared_variables_lie_over_those_of_the_image():
    image = make_image(
        {**python("/usr/local"), **dist(site("/usr/local"), "peft", "0.14.0")},
        env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:64", "NCCL_DEBUG": "INFO"},
    )
    environment = only(read_image(image, (), {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"}))
    assert environment.facts["allocator.expandable_segments"][0] is False
    assert "allocator.max_split_size_mb" not in environment.facts
    assert environment.variables["NCCL_DEBUG"] == "INFO"
    assert environment.variables_complete is True


def test_only_environment_with_packages_is_the_started_one():
    files = {**debian(), **python("/opt/odd"), **dist(site("/opt/odd"), "peft", "0.14.0")}
    reading = read(files, env={"PATH": "/bin"})
    assert started(reading) == ["/opt/odd"]
    assert reading.start.reason == "the only one that holds packages; no Python on its PATH"
    assert [entry.place.name for entry in reading.environments] == ["/opt/odd", "/usr"]


def test_unread_layer_makes_absent_packages_unknown():
    image = make_image({**python("/usr/local"), **dist(site("/usr/local"), "peft", "0.14.0")})
    assert only(read_image(image, ())).complete is True
    damaged = image._replace(skipped=(Skipped(Source("train.tar"), "is not in the archive"),))
    assert only(read_image(damaged, ())).complete is False


def test_what_an_image_says_of_the_driver_becomes_facts():
    status = "Package: cuda-compat-12-4\nStatus: install ok installed\nVersion: 550.54.15-0ubuntu1\n"
    files = {
        **python("/usr/local", "3.12"),
        **torch(site("/usr/local", "3.12"), "2.6.0+cu124", "12.4"),
        "/var/lib/dpkg/status": status,
    }
    required = "cuda>=12.4 brand=tesla,driver>=535,driver<536"
    facts = only(read(files, env={"NVIDIA_REQUIRE_CUDA": required})).facts
    assert facts["runtime.cuda_compat"][0] == "12.4"
    assert facts["runtime.driver_required"][0] == ">=550 || >=535,<536"


def test_leftovers_of_another_python_are_a_directory_of_their_own():
    reading = read(
        {
            **python("/usr/local"),
            **dist(site("/usr/local"), "peft", "0.14.0"),
            **dist(site("/usr/local", "3.9"), "torch", "1.13.1"),
        },
        env={"PATH": "/usr/local/bin"},
    )
    assert packages(reading) == {"/usr/local": {"peft": "0.14.0"}, site("/usr/local", "3.9"): {"torch": "1.13.1"}}
    assert started(reading) == ["/usr/local"]


@pytest.mark.parametrize(
    "files",
    [
        {f"/v/{number}/pyvenv.cfg": "home = /usr/bin\n" for number in range(5000)},
        {f"/p/{number}/lib/python3.11/site-packages/a-1.dist-info/METADATA": "" for number in range(5000)},
        {f"/t/{number}/a-1.dist-info/METADATA": "" for number in range(5000)},
        {f"/usr/lib/python3.{number}/{name}": "" for number in range(5000) for name in ("os.py", "site-packages/")},
        {f"/c/{number}/{name}": "" for number in range(5000) for name in ("CACHEDIR.TAG", "a-1.dist-info/METADATA")},
        {f"{'/d' * number}/a-1.dist-info/METADATA": "" for number in range(1, 400)},
    ],
    ids=["venvs", "prefixes", "targets", "pythons", "caches", "deep"],
)
def test_image_of_very_many_environments_is_read_in_bounded_time(files):
    image = make_image({**python("/usr/local"), **files}, env={"PATH": "/usr/local/bin"})
    with at_most(100):
        reading = read_image(image, ())
    assert len(reading.environments) <= MAX_PLACES
    if len(reading.environments) == MAX_PLACES:
        assert "more environments or packages than are looked at" in reading.skipped[0].reason


def test_environments_that_share_very_many_packages_are_not_all_read(monkeypatch):
    monkeypatch.setattr(environments, "MAX_PACKAGES", 2500)
    files = python("/usr")
    files |= {f"{site('/usr')}/a{number}-1.dist-info/METADATA": "Name: a\n" for number in range(1000)}
    for number in range(50):
        files |= venv(f"/v/{number}", "/usr", system=True)
    reading = read(files, env={"PATH": "/usr/bin"})
    assert len(reading.environments) == 3
    assert "/v/" in reading.skipped[0].reason
