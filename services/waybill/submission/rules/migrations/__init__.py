"""The schema `submission` of the control database: the rules of principals, as history."""
