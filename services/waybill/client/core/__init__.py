"""What the client decides, without doing it: operations that yield what to do next and are told what came of it."""
