"""The command line: one typer tree, one module per noun, nothing loaded before it is needed."""

from waybill.cli.app import main

__all__ = ["main"]
