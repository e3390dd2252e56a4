"""The ways to run a stack behind one small interface: processes here, containers, or addresses somebody gives."""
