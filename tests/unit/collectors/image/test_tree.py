import errno

import pytest

from compatcheck.collectors.image.layers import Budget, scan_layer
from compatcheck.collectors.image.stream import Peeked
from compatcheck.collectors.image.tree import ImageTree
from tests.unit.collectors.image.archives import Same, To, dist, listing, tar

SITE = "opt/lib/python3.11/site-packages"
OLD, NEW = dist(SITE, "torch", "2.5.0"), dist(SITE, "torch", "2.6.0")


class Bytes:
    def __init__(self, data):
        self._data = data
        self.position = 0

    def read(self, count):
        data = self._data[self.position : self.position + count]
        self.position += len(data)
        return data

    def skip(self, count):
        return len(self.read(count))


def build(*layers):
    tree = ImageTree()
    for layer in layers:
        record = scan_layer(Peeked(Bytes(tar(layer)), 512), Budget())
        assert record.problems == ()
        assert tree.apply(record) == []
    return tree


def distributions(tree):
    return [path.rpartition("/")[2] for path in tree.find_directories("*.dist-info")]


def code_of(function, *given):
    try:
        function(*given)
    except OSError as error:
        return error.errno
    return None


def test_a_later_layer_overwrites_and_removes():
    tree = build(OLD, {f"{SITE}/.wh.torch-2.5.0.dist-info": "", **NEW})
    assert distributions(tree) == ["torch-2.6.0.dist-info"]
    changed = build(OLD, {next(iter(OLD)): "Name: torch\nVersion: 2.5.0+local\n"})
    assert "2.5.0+local" in changed.read_text(f"/{next(iter(OLD))}")
    assert changed.read_text(f"/{SITE}/torch-2.5.0.dist-info/INSTALLER") == "pip\n"


def test_a_whiteout_removes_a_whole_directory_and_only_of_lower_layers():
    assert distributions(build(OLD, {"opt/lib/.wh.python3.11": ""})) == []
    # Spec: whiteouts apply to lower layers, wherever they stand in their own.
    assert distributions(build(OLD, [*NEW.items(), (f"{SITE}/.wh.torch-2.5.0.dist-info", "")])) == [
        "torch-2.6.0.dist-info"
    ]
    assert distributions(build(OLD, [("opt/.wh.lib", ""), *OLD.items()])) == ["torch-2.5.0.dist-info"]


def test_an_opaque_directory_hides_what_lower_layers_have_in_it():
    tree = build({**OLD, "opt/pyvenv.cfg": "x"}, [*NEW.items(), (f"{SITE}/.wh..wh..opq", "")])
    assert distributions(tree) == ["torch-2.6.0.dist-info"]
    assert tree.is_file("/opt/pyvenv.cfg")


def test_bookkeeping_of_aufs_and_impossible_whiteouts_remove_nothing():
    tree = build(
        OLD,
        {f"{SITE}/.wh..wh.plnk": "", ".wh..wh.aufs": "", f"{SITE}/.wh.": "", f"{SITE}/.wh...": "", "opt/.wh...": ""},
    )
    assert distributions(tree) == ["torch-2.5.0.dist-info"]


@pytest.mark.parametrize("name", ["opt", "opt/lib/python3.11", SITE])
def test_a_file_that_is_not_kept_hides_a_directory(name):
    assert distributions(build(OLD, {name: "text"})) == []


def test_a_directory_takes_the_place_of_a_link_and_leaves_a_directory():
    linked = {"usr/lib/python3.11/os.py": "", "lib": To("usr/lib")}
    assert build(linked).is_file("/lib/python3.11/os.py")
    assert not build(linked, {"lib/": "", "lib/data": ""}).is_file("/lib/python3.11/os.py")
    assert distributions(build(OLD, {"opt/": "", f"{SITE}/": ""})) == ["torch-2.5.0.dist-info"]


def test_entries_below_a_link_of_a_lower_layer_lie_where_it_leads():
    tree = build({"usr/lib/": "", "lib": To("usr/lib")}, {"lib/python3.11/os.py": ""}, {"lib/.wh.python3.11": ""})
    assert not tree.exists("/usr/lib/python3.11")
    assert build({"lib": To("/usr/lib")}, {"lib/python3.11/os.py": ""}).is_file("/usr/lib/python3.11/os.py")


def test_a_hidden_path_stays_hidden_only_until_it_is_made_again():
    assert distributions(build(OLD, {"opt": "text"}, {"opt/": "", **NEW})) == ["torch-2.6.0.dist-info"]


def test_the_file_names_of_hard_links_share_what_was_kept():
    cached = dist("root/.cache/uv/archive-v0/abc", "numpy", "2.0.0")
    links = {f"{SITE}/{name.split('/', 5)[5]}": Same(name) for name in cached}
    tree = build({**cached, **links})
    assert tree.read_text(f"/{SITE}/numpy-2.0.0.dist-info/METADATA").startswith("Metadata-Version")
    unknown = build({"data": "x", f"{SITE}/a-1.dist-info/METADATA": Same("data")})
    assert unknown.is_file(f"/{SITE}/a-1.dist-info/METADATA")
    assert code_of(unknown.size_bytes, f"/{SITE}/a-1.dist-info/METADATA") == errno.ENODATA
    assert code_of(unknown.read_text, f"/{SITE}/a-1.dist-info/METADATA") == errno.ENODATA


LINKS = build(
    {
        "opt/venv/pyvenv.cfg": "home = /usr/bin\n",
        "absolute": To("/opt/venv"),
        "relative": To("opt/./venv/"),
        "above": To("../../../../opt/venv"),
        "opt/up": To("../opt/venv"),
        "chain": To("/relative"),
        "self": To("self"),
        "one": To("two"),
        "two": To("/one/x"),
        "dangling": To("/nowhere/at/all"),
        "through": To("opt/venv/pyvenv.cfg/x"),
        "host": To("/etc/passwd"),
        "usr/bin/python3": To("python3.11"),
        "usr/bin/python3.11": "binary",
        "opt/venv/bin/python": To("/usr/bin/python3"),
    }
)


@pytest.mark.parametrize("way", ["absolute", "relative", "above", "opt/up", "chain", "opt/../chain", "../../relative"])
def test_links_are_followed_inside_the_image(way):
    assert LINKS.read_text(f"/{way}/pyvenv.cfg") == "home = /usr/bin\n"
    assert LINKS.resolve(f"/{way}") == "/opt/venv"


@pytest.mark.parametrize(
    ("path", "code"), [("self", errno.ELOOP), ("one", errno.ELOOP), ("dangling", errno.ENOENT), ("host", errno.ENOENT)]
)
def test_links_that_lead_nowhere_are_errors_of_the_kernel(path, code):
    assert code_of(LINKS.read_text, f"/{path}") == code
    assert not LINKS.exists(f"/{path}")
    assert not LINKS.is_file(f"/{path}/x")
    LINKS.resolve(f"/{path}")


def test_errors_are_those_of_os():
    assert code_of(LINKS.list_names, "/opt/venv/pyvenv.cfg") == errno.ENOTDIR
    assert code_of(LINKS.read_bytes, "/opt") == errno.EISDIR
    assert code_of(LINKS.list_names, "/missing") == errno.ENOENT
    assert code_of(LINKS.read_text, "/usr/bin/python3") == errno.ENODATA
    assert code_of(LINKS.modified, "/missing") == errno.ENOENT


def test_paths_are_resolved_as_os_path_does_it():
    assert LINKS.resolve("/opt/venv/bin/python") == "/usr/bin/python3.11"
    assert LINKS.resolve("/dangling") == "/nowhere/at/all"
    assert LINKS.resolve("/missing/../opt") == "/opt"
    assert LINKS.read_link("/opt/venv/bin/python") == "/usr/bin/python3"
    assert LINKS.read_link("/opt/venv") is None
    assert LINKS.size_bytes("/opt/venv/pyvenv.cfg") == 16
    assert LINKS.modified("/opt/venv/pyvenv.cfg") == 1_700_000_000


def test_what_is_found_is_found_once_under_its_real_path():
    assert list(LINKS.find("pyvenv.cfg")) == ["/opt/venv/pyvenv.cfg"]
    assert list(LINKS.find_files("python*")) == ["/usr/bin/python3.11"]
    assert list(LINKS.find("python*")) == ["/opt/venv/bin/python", "/usr/bin/python3", "/usr/bin/python3.11"]
    assert LINKS.glob("/absolute/bin/pyth*") == ["/absolute/bin/python"]
    assert LINKS.glob("/usr/*/python3*") == ["/usr/bin/python3", "/usr/bin/python3.11"]
    assert LINKS.glob("/self/*") == []


def test_names_that_are_no_utf_8_are_kept():
    tree = build({"caf\udce9/pyvenv.cfg": "x"})
    assert list(tree.find_files("pyvenv.cfg")) == ["/caf\udce9/pyvenv.cfg"]
    assert listing(tree)["/caf\udce9/pyvenv.cfg"] == b"x"
