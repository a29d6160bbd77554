"""Has cloud-init read user data, and run its scripts, for servers that are directories.

Reads a list of servers from stdin, as JSON, each with a directory for cloud-init, the PATH and the NODE_ROOT of its
scripts, and its user data in base64. Prints what cloud-init has made of each: the merged cloud-config, and its warnings.
"""
import base64
import json
import logging
import os
import sys

from cloudinit import handlers, helpers, subp, user_data, util
from cloudinit.handlers.cloud_config import CloudConfigPartHandler
from cloudinit.handlers.jinja_template import JinjaTemplatePartHandler
from cloudinit.handlers.shell_script import ShellScriptPartHandler

warnings = []


class Collect(logging.Handler):
    def emit(self, record):
        warnings.append(record.getMessage())


class Source:
    def get_instance_id(self):
        return "i"


def boot(directory, data):
    paths = helpers.Paths({"cloud_dir": directory, "run_dir": directory}, Source())
    os.makedirs(os.path.join(directory, "instances", "i", "scripts"), exist_ok=True)
    os.symlink(os.path.join(directory, "instances", "i"), os.path.join(directory, "instance"))
    with open(paths.get_runpath("instance_data_sensitive"), "w") as f:
        json.dump({"v1": {"instance_id": "i"}, "ds": {"meta_data": {"name": "server-1"}}}, f)

    known = helpers.ContentHandlers()
    kinds = [CloudConfigPartHandler(paths=paths), ShellScriptPartHandler(paths=paths)]
    for handler in kinds + [JinjaTemplatePartHandler(paths, sub_handlers=kinds)]:
        known.register(handler)
    message = user_data.UserDataProcessor(paths).process(data)
    for handler in kinds:
        handlers.call_begin(handler, None, "always")
    handlers.walk(message, handlers.walker_callback, data={
        "handlers": known, "handlerdir": directory, "data": None, "frequency": "always", "handlercount": 0, "excluded": []})
    for handler in kinds:
        handlers.call_end(handler, None, "always")

    merged = util.load_yaml(util.load_file(paths.get_ipath("cloud_config")), default={})
    scripts = paths.get_ipath_cur("scripts")
    if isinstance(merged.get("runcmd"), list):
        # As cc_runcmd does.
        util.write_file(os.path.join(scripts, "runcmd"), util.shellify(merged["runcmd"]), 0o700)
    try:
        # As cc_scripts_user does.
        subp.runparts(scripts)
    except RuntimeError as error:
        warnings.append(str(error))
    return merged


logging.getLogger().addHandler(Collect(level=logging.WARNING))
booted = []
for server in json.load(sys.stdin):
    warnings.clear()
    os.environ["PATH"], os.environ["NODE_ROOT"] = server["path"], server["root"]
    config = boot(server["directory"], base64.b64decode(server["userData"]))
    booted.append({"config": config, "warnings": list(warnings)})
print(json.dumps(booted, default=bytes.decode))
