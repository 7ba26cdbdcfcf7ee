"""Makes of Bazel's actions a folder of sources with a Makefile: plan.py FOLDER SETTING <ACTIONS

ACTIONS is what `bazel aquery --output=jsonproto` prints. Every compile and link keeps its own flags, and every source is one
that Bazel reads, so nothing here has to be told of a new file. Left to the machine that builds: compilers, toolkit and the
optional libraries (CC, NVCC, CUDA, ZLIB, JPEG), which are variables of the Makefile. SETTING is the value of //bazel:cuda.
"""

import collections
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

OUTPUT = re.compile(r"bazel-out/[^/]+/bin/")
# Of Bazel's own: where it is, what makes its outputs the same, and -Werror, which a newer compiler's warnings would turn against us.
DROPPED = re.compile(r"-frandom-seed=|-D__(DATE|TIME|TIMESTAMP)__=|-Werror$|--Werror$|all-warnings$|-fuse-ld=|-B/|-pass-exit-codes|@")


class Actions:
    """What aquery printed, with paths in the place of numbers."""

    def __init__(self, text):
        self.graph = json.loads(text)
        fragments = {f["id"]: f for f in self.graph["pathFragments"]}

        def path(number):
            fragment = fragments[number]
            parent = fragment.get("parentId")
            return (path(parent) + "/" if parent else "") + fragment["label"]

        self.paths = {a["id"]: path(a["pathFragmentId"]) for a in self.graph["artifacts"]}
        self.sets = {s["id"]: s for s in self.graph.get("depSetOfFiles", [])}
        self.of_output = {}
        for action in self.graph["actions"]:
            for output in action["outputIds"]:
                self.of_output[self.paths[output]] = action

    def inputs(self, action):
        """Paths of all inputs, those behind Bazel's middlemen included."""
        found, seen, todo = [], set(), list(action.get("inputDepSetIds", []))
        while todo:
            number = todo.pop()
            if number in seen:
                continue
            seen.add(number)
            files = self.sets[number]
            todo += files.get("transitiveDepSetIds", [])
            for artifact in files.get("directArtifactIds", []):
                path = self.paths[artifact]
                behind = self.of_output.get(path)
                if behind is not None and behind["mnemonic"] == "Middleman":
                    todo += behind.get("inputDepSetIds", [])
                else:
                    found.append(path)
        return found

    def all(self, mnemonic):
        return [a for a in self.graph["actions"] if a["mnemonic"] == mnemonic]


def here(path):
    """A path of Bazel's as it is called in the folder."""
    return OUTPUT.sub("out/", path)


def copy(source, target):
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copyfile(source, target)
    shutil.copymode(source, target)


def copy_inputs(actions, folder):
    """The sources of all compilations, and the headers that Bazel makes of others by a link."""
    for action in actions.all("CppCompile") + actions.all("CudaCompile"):
        for path in actions.inputs(action):
            if path.startswith("external/") or path.startswith("/"):
                continue
            target = os.path.join(folder, here(path))
            if os.path.exists(target):
                continue
            made_by = actions.of_output.get(path)
            if made_by is None:
                if os.path.isfile(path):
                    copy(path, target)
            elif made_by["mnemonic"] == "Symlink":
                copy(actions.inputs(made_by)[0], target)
            elif made_by["mnemonic"] not in ("CppCompile", "CudaCompile", "Genrule"):
                sys.exit("plan.py: %s is made by %s, which it cannot do" % (path, made_by["mnemonic"]))


def compiler_flags(arguments):
    """Flags without the compiler, the source, the object and all that is Bazel's or this machine's."""
    flags, i = [], 0
    while i < len(arguments):
        argument = arguments[i]
        following = arguments[i + 1] if i + 1 < len(arguments) else ""
        if argument in ("-MF", "-o", "-c"):
            i += 1 if argument == "-c" else 2
            continue
        if argument in ("-iquote", "-isystem", "-I") and ("external/" in following):
            if argument == "-isystem" and following == "external/local_cuda/include":
                flags += ["-isystem", "$(CUDA)/include"]
            i += 2
            continue
        if argument.startswith("-Iexternal/") or argument == "-MD" or DROPPED.match(argument):
            i += 1
            continue
        argument = here(argument + "/").rstrip("/") if argument.startswith(("-I", "bazel-out/")) else here(argument)
        for library in ("ZLIB", "JPEG"):
            argument = re.sub(r"^-DND_HAVE_%s=1$" % library, "-DND_HAVE_%s=$(%s)" % (library, library), argument)
        flags.append(argument)
        i += 1
    return flags


def quoted(flags):
    return " ".join(f if "$(" in f else shlex.quote(f).replace("$", "$$") for f in flags)


class Makefile:
    def __init__(self):
        self.flags = {}  # as text: the variable's name
        self.rules = []
        self.archives = collections.OrderedDict()
        self.programs = []

    def variable(self, text):
        return self.flags.setdefault(text, "FLAGS_%d" % len(self.flags))

    def compile(self, action, compiler):
        arguments = action["arguments"]
        if compiler == "NVCC":
            arguments = arguments[next(i for i, a in enumerate(arguments) if a.endswith("/nvcc")) :]
        source = next(a for a in reversed(arguments) if a.endswith((".c", ".cc", ".cu", ".cpp")))
        target = here(arguments[arguments.index("-o") + 1])
        flags = [f for f in compiler_flags(arguments[1:]) if f != here(source)]
        if compiler == "CC":
            flags = ["-Ikit"] + flags
        variable = self.variable(quoted(flags))
        depends = "-MMD -MP" if compiler == "CC" else ""
        self.rules.append("%s: %s\n\t@mkdir -p $(@D)\n\t$(%s) $(%s) $(EXTRA_%s) %s -c $< -o $@\n" %
                          (target, here(source), compiler, variable, compiler, depends))

    def archive(self, objects):
        """Objects of one library of which a program takes what it asks for."""
        name = os.path.dirname(objects[0]).replace("/_objs/", "/").rstrip("/") + ".a"
        self.archives.setdefault(name, [])
        self.archives[name] += [o for o in objects if o not in self.archives[name]]
        return name

    def link(self, actions, action):
        objects, archives, options, whole, group = [], [], [], False, None
        target = here(actions.paths[action["outputIds"][0]])
        for argument in action["arguments"][1:]:
            path = here(argument)
            if argument == "-o" or path == target:
                continue
            if argument == "-Wl,-whole-archive":
                whole = True
            elif argument == "-Wl,-no-whole-archive":
                whole = False
            elif argument == "-Wl,--start-lib":
                group = []
            elif argument == "-Wl,--end-lib":
                archives.append(self.archive(group))
                group = None
            elif argument == "external/local_cuda/libcudart_static.a":
                options.append("$(CUDA)/lib64/libcudart_static.a")
            elif path.startswith("out/") and path.endswith((".a", ".lo")):
                members = [here(p) for p in actions.inputs(actions.of_output[argument]) if p.endswith(".o")]
                if whole or path.endswith(".lo"):
                    objects += members
                else:
                    archives.append(self.archive(members))
            elif path.endswith(".o"):
                (objects if group is None else group).append(path)
            elif argument == "-lz":
                options.append("$(LIBZ)")
            elif argument not in ("-lcmocka", "-lstdc++") and not DROPPED.match(argument):
                options.append(path)
        self.programs.append(target)
        self.rules.append("%s: %s %s\n\t@mkdir -p $(@D)\n\t$(CC) -o $@ %s -Wl,--start-group %s -Wl,--end-group %s\n" %
                          (target, " ".join(objects), " ".join(archives), " ".join(objects), " ".join(archives), quoted(options)))

    def write(self, file):
        file.write("# Made by tests/gpu/kit/plan.py of Bazel's actions.\nCC = gcc\nCUDA = /usr/local/cuda\nNVCC = $(CUDA)/bin/nvcc\n"
                   "ZLIB = 0\nJPEG = 0\nLIBZ = $(if $(filter 1,$(ZLIB)),-lz)\n\n")
        for text, name in self.flags.items():
            file.write("%s = %s\n" % (name, text))
        file.write("\nall: %s\n\n" % " ".join(self.programs))
        for name, objects in self.archives.items():
            file.write("%s: %s\n\trm -f $@\n\tar rcs $@ $^\n" % (name, " ".join(objects)))
        file.write("\n".join(self.rules))
        file.write("\n-include $(shell find out -name '*.d' 2>/dev/null)\n")


def run_genrules(actions, folder):
    """What a command of the build makes: sources of sources, and data, which programs look for where their rule stands."""
    for action in actions.all("Genrule"):
        for path in actions.inputs(action):
            if not path.startswith(("external/", "bazel-out/")) and os.path.isfile(path):
                copy(path, os.path.join(folder, path))
        outputs = [actions.paths[o] for o in action["outputIds"]]
        for output in outputs:
            os.makedirs(os.path.join(folder, os.path.dirname(here(output))), exist_ok=True)
        command = re.sub(r"^source [^;]*; ", "", action["arguments"][2])
        subprocess.run(["/bin/bash", "-c", OUTPUT.sub("out/", command)], cwd=folder, check=True)
        for output in outputs:
            if not output.endswith((".c", ".cc", ".h")):
                copy(os.path.join(folder, here(output)), os.path.join(folder, OUTPUT.sub("", output)))


def main():
    folder, setting = sys.argv[1:]
    actions = Actions(sys.stdin.read())
    copy_inputs(actions, folder)
    run_genrules(actions, folder)
    makefile = Makefile()
    for action in actions.all("CppCompile"):
        makefile.compile(action, "CC")
    for action in actions.all("CudaCompile"):
        makefile.compile(action, "NVCC")
    for action in actions.all("CppLink"):
        if not action["arguments"][0].endswith("/ar"):
            makefile.link(actions, action)
    with open(os.path.join(folder, "Makefile"), "w") as file:
        makefile.write(file)
    with open(os.path.join(folder, "programs"), "w") as file:
        file.write("".join("%s\n" % re.sub("^out/", "", p) for p in makefile.programs))
    print("%s: %d compilations, %d programs, //bazel:cuda=%s" % (folder, len(actions.all("CppCompile")) + len(actions.all("CudaCompile")),
                                                                len(makefile.programs), setting))


if __name__ == "__main__":
    main()
