"""Reads a task of SkyPilot or dstack from the standard input, and prints what its package refuses: tasks.py sky|dstack

Only what reads tasks is loaded: the other packages that both need are not installed.
"""

import ast
import re
import sys
import types
from importlib import util
from pathlib import Path

import jsonschema
import yaml


def package(name):
    return Path(util.find_spec(name).submodule_search_locations[0])


class WithoutCalls(ast.NodeTransformer):
    """Accepts everything where a schema takes a part from another function."""

    def visit_Call(self, node):
        return ast.copy_location(ast.Dict([], []), node)


def sky(task):
    """SkyPilot's schema is the literal that a function returns."""
    source = ast.parse((package("sky") / "utils/schemas.py").read_text())
    function = next(node for node in source.body if getattr(node, "name", "") == "get_task_schema")
    schema = next(node for node in function.body if isinstance(node, ast.Return)).value
    schema = ast.literal_eval(WithoutCalls().visit(schema))
    yield from (error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(task))
    constants = (package("sky") / "skylet/constants.py").read_text()
    for name in re.findall(r"\$\{?SKYPILOT_(\w+)", task["run"]):
        if f"SKYPILOT_ENV_VAR_PREFIX}}{name}'" not in constants:
            yield f"SkyPilot sets no variable SKYPILOT_{name}"


def dstack(task):
    """dstack's models name types of packages that no task needs."""
    for name in ("gpuhunt", "apscheduler", "apscheduler.triggers", "apscheduler.triggers.cron"):
        stand_in = types.ModuleType(name)
        stand_in.__path__ = []
        stand_in.__getattr__ = lambda _: object
        sys.modules[name] = stand_in
    from dstack._internal.core.models.configurations import parse_run_configuration

    try:
        parse_run_configuration(task)
    except Exception as error:  # noqa: BLE001: whatever it refuses
        yield str(error)


found = list({"sky": sky, "dstack": dstack}[sys.argv[1]](yaml.safe_load(sys.stdin)))
print("\n".join(found))
