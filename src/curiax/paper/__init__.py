"""The paper as data: what its suites train, the numbers it has, and where it and its released code disagree."""
