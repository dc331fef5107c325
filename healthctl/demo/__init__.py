"""The whole chain on one machine: a pretend cluster, two real faults, and the proof that training came out as if nothing had happened.

May live here: what brings the pretend cluster up and takes it down, the scenario, its checks, the telling of it.
May not: anything the product needs when it is not being shown.
"""
