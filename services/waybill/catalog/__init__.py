"""Topics and schemas as files: what is declared, what is there, and the plan between the two."""
