"""What an audit chain is, and how a change in it is found."""
