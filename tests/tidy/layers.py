# SPDX-License-Identifier: MIT
"""Dependencies between folders run one way. The table is the design; change both together."""
import posixpath
import re

# folder -> folders it may include besides itself. "include" is the public interface, include/aplib/.
MAY_INCLUDE = {
    "include": [],
    "src/arch": [],
    "src/base": ["include", "src/arch"],
    "src/memory": ["include", "src/arch", "src/base"],
    "src/task": ["include", "src/arch", "src/base"],
    "src/cell": ["include", "src/arch", "src/base", "src/memory", "src/task"],
    "src/comm": ["include", "src/arch", "src/base"],
    "src/calls": ["include", "src/base"],
    "src/loader": ["include", "src/arch", "src/base", "src/memory", "src/calls"],
    "src/compile": ["src/arch", "src/base"],
    "src/kernel": ["include", "src/arch", "src/base", "src/memory", "src/task", "src/cell", "src/comm", "src/calls",
                   "src/loader"],
    "src/cellos": ["include", "src/base", "src/kernel"],
    "src/mpi": ["include", "src/arch", "src/base", "src/kernel"],
    "src/relay": ["include", "src/base", "src/comm"],
    "src/launch": ["include", "src/base", "src/comm", "src/kernel"],
    "src/farm": ["include", "src/base", "src/kernel", "src/launch"],
    "src/gridrpc": ["include", "src/base", "src/calls", "src/launch"],
    "apps": ["include"],
    "bench": ["include"],
    "bench/load": ["include", "src/arch", "src/base", "src/memory", "src/loader"],  # measures the loader from inside
    "bench/module": ["include", "bench", "src/arch", "src/base", "src/comm"],  # measures modules from inside
    "bench/coordinator": ["include", "src/base", "src/comm", "src/kernel", "src/launch"],  # with simulated nodes
    "bench/relay": ["include", "src/base", "src/comm"],  # calls a relay as a process does
    "bench/datatype": ["include", "src/base", "src/mpi"],  # measures the copies of datatypes alone
    "bench/fabric": ["include", "bench", "bench/module"],
    "bench/paper": ["include", "apps"],  # puts other loops into scg
    "examples": ["include"],
}
# Front ends see the kernel's API alone.
API_ONLY = {
    ("src/cellos", "src/kernel"): ["src/kernel/api.hpp", "src/kernel/programs.hpp"],
    ("src/mpi", "src/kernel"): [
        "src/kernel/api.hpp",
        "src/kernel/condition.hpp",
        "src/kernel/coroutine.hpp",
        "src/kernel/errand.hpp",
        "src/kernel/mailbox.hpp",
        "src/kernel/mailbox_inline.hpp",
        "src/kernel/program_threads.hpp",
        "src/kernel/shared_memory.hpp",
    ],
    ("src/launch", "src/kernel"): [
        "src/kernel/api.hpp",
        "src/kernel/programs.hpp",
        "src/kernel/process.hpp",
        "src/kernel/overseer.hpp",
    ],
    ("src/farm", "src/kernel"): ["src/kernel/kept_programs.hpp"],
    ("src/farm", "src/launch"): [
        "src/launch/files/manifest.hpp",
        "src/launch/files/receiver.hpp",
        "src/launch/files/sender.hpp",
        "src/launch/pool/file_tree.hpp",
        "src/launch/pool/pool.hpp",
        "src/launch/program_path.hpp",
        "src/launch/start/launch_method.hpp",
        "src/launch/terminal.hpp",
        "src/launch/this_host.hpp",
        "src/launch/thread_locals.h",
        "src/launch/wire/fields.hpp",
    ],
    ("src/gridrpc", "src/launch"): ["src/launch/cluster/document.hpp"],
}

# A third-party library is used in one layer, so that it can be changed there. (header pattern, folders, why)
THIRD_PARTY = [
    (
        r"boost/context/|boost/.*fcontext",
        ["src/task", "src/arch", "bench"],
        "only src/task switches stacks (and the benchmark of the bare switch)",
    ),
    (r"valgrind/", ["src/task"], "only src/task knows stacks"),
    (r"sanitizer/", ["src/task", "src/base"], "only src/task tells the sanitizers about stacks"),
    (r"boost/interprocess/", ["src/memory"], "only the heap in the slot places blocks"),
    (r"hwloc", ["src/kernel", "bench"], "only placement looks at the machine's topology"),
    (r"ffi\.h", ["src/calls"], "only src/calls calls functions by their types' names"),
    (r"elfutils/|dwarf\.h", ["src/calls"], "only src/calls reads debug information"),
    (r"boost/asio", ["src/comm", "src/relay", "src/launch", "bench", "bench/relay"],
     "only modules, the relay and the launcher speak to the network"),
    (r"boost/beast", ["src/launch"], "only apctl web speaks HTTP"),
    (
        r"rdma/",
        ["src/comm", "bench/fabric"],
        "only the module rdma speaks to libfabric (and the benchmark of libfabric alone)",
    ),
    (r"openssl/", ["src/comm", "bench"], "only modules encrypt"),
    (r"toml\+\+", ["src/launch"], "the library reads no files of options"),
    (r"CLI/", ["apps", "bench", "bench/coordinator", "src/farm", "src/gridrpc", "src/launch", "src/relay"],
     "the library reads no command line"),
    (r"png\.h", ["apps"], "only programs draw"),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def folder_of(path):
    parts = path.split("/")
    two = "/".join(parts[:2])
    name = two if parts[0] == "src" or two in MAY_INCLUDE else parts[0]
    return name if name in MAY_INCLUDE or parts[0] in {"src", "include", "apps", "bench"} else None


def resolve(repository_files, path, name):
    """The repository's file that `name` means when `path` includes it; None for a library's."""
    for candidate in (
        posixpath.normpath(posixpath.join(posixpath.dirname(path), name)),
        "include/" + name,
        "src/" + name,
    ):
        if candidate in repository_files:
            return candidate
    return None


def is_included(repository, files, path, folder):
    """Whether the file, or its own header, includes a header of the folder by name."""
    own = re.sub(r"\.cpp$", ".hpp", path)
    return any(name.startswith(folder) for each in {path, own} & files
               for _, name in INCLUDE.findall(repository.text(each)))


def precompiled(repository, files, path):
    """Builds that precompile this library's headers do not notice a missing #include; other builds fail."""
    if re.search(r"^[^/\n]*\bfmt::", repository.text(path), re.MULTILINE) \
            and not is_included(repository, files, path, "fmt/"):
        yield f"{path}: names fmt:: without <fmt/format.h>; include it in this file, or in its own header"


def check_layers(repository, _):
    complaints = []
    files = {str(path) for path in repository.files}
    for path in map(str, repository.cxx()):
        complaints += precompiled(repository, files, path)
        folder = folder_of(path)
        if folder is None:
            continue  # tests may look at everything
        if folder not in MAY_INCLUDE:
            complaints.append(
                f"{path}: the folder {folder} is not in the table of tests/tidy/layers.py; what may it include?"
            )
            continue
        for match in INCLUDE.finditer(repository.text(path)):
            bracket, name = match.groups()
            line = repository.text(path)[: match.start()].count("\n") + 1
            target = resolve(files, path, name)
            if target is None:
                if bracket == '"':
                    complaints.append(f'{path}:{line}: "{name}" is not a file of the repository; use <> for libraries')
                complaints += third_party(path, line, folder, name)
                continue
            target_folder = folder_of(target) or target
            if target_folder == folder:
                continue
            if target_folder not in MAY_INCLUDE[folder]:
                allowed = ", ".join(MAY_INCLUDE[folder]) or "nothing else of the repository"
                complaints.append(f"{path}:{line}: includes {target}; {folder} may include {allowed}")
            elif target not in API_ONLY.get((folder, target_folder), [target]):
                complaints.append(
                    f"{path}:{line}: includes {target}; {folder} may include"
                    f" {', '.join(API_ONLY[folder, target_folder])} of {target_folder}"
                )
    return complaints


def third_party(path, line, folder, name):
    if folder == "include" and ("/" in name and not name.startswith(("sys/", "aplib/"))):
        return [f"{path}:{line}: includes <{name}>; public headers need the standard library alone"]
    return [f"{path}:{line}: includes <{name}>; {why} ({', '.join(folders)})"
            for pattern, folders, why in THIRD_PARTY if re.match(pattern, name) and folder not in folders]
