"""The node daemon and what runs beside it on a GPU node. States facts, never policy; imports nothing of the centre."""
