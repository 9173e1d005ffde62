"""Search: batched analysis of populations, the cost-model protocol, and evolutionary search
(ask/tell)."""
