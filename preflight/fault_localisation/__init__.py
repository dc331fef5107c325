"""Which node, link, switch or NIC is slow, from results of pairs. Pure, numpy only; it starts nothing and waits for nothing."""
