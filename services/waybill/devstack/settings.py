"""Writes the configuration files of a stack's services, the same for every back end that starts them here."""

import shutil
from pathlib import Path

from waybill.devstack import plan
from waybill.devstack.stack import Stack, write_private

__all__ = ["log_file", "write_settings"]


def log_file(stack: Stack, service: str) -> Path:
    """Return where a service's log is."""
    return stack.folder / "logs" / f"{service}.log"


def write_settings(stack: Stack, plugin_path: Path, service: str) -> None:
    """Write the files a broker, Connect or the registry reads at its start; anew each time, for ports may move."""
    work = stack.folder / service
    shutil.rmtree(work / "tmp", ignore_errors=True)  # native libraries a killed JVM unpacked
    (work / "tmp").mkdir(parents=True)
    if service == "registry":
        text = plan.properties_text(plan.registry_properties(stack))
        write_private(work / "config" / "application.properties", text)
        return
    write_private(work / "log4j2.properties", plan.log_settings(log_file(stack, service)))
    if service == "connect":
        text = plan.properties_text(plan.connect_properties(stack, plugin_path))
        write_private(work / "connect.properties", text)
    else:
        text = plan.properties_text(plan.broker_properties(stack, int(service.removeprefix("kafka-"))))
        write_private(work / "server.properties", text)
