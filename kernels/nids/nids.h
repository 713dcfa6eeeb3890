/* godwit function nids
summary  = "Detects and blocks intrusions with Snort and Suricata rules, and writes EVE records."
spec     = "Suricata 7 user guide, chapters Rules and EVE JSON Format"
kernel   = false
in_order = true
host     = ["reads_times"]
variants = ["inspect"]
[verdicts]
clean = { text = "No rule matched.", port = true }
alert = { text = "A rule matched. The value is the `sid` of the first one.", port = true }
[drops]
rule   = "A rule with the action `drop` or `reject` matched."
flow   = "A rule dropped an earlier packet of the flow."
stream = "The packet does not belong to its TCP connection."
memory = 'The memory for TCP streams is used up, and `fail` is `"closed"`.'
[counters]
alerts = { unit = "alerts", text = "Alerts of rules, before the selection of records." }
suppressed = { unit = "alerts", text = "Alerts that a threshold of their rule suppressed." }
flows = { unit = "flows", text = "Flows that began." }
evicted = {
    unit = "flows",
    text = "Flows that left before their timeout, because the flow table was full.",
}
gaps = { unit = "gaps", text = "Gaps in TCP streams that were given up." }
refused = {
    unit = "packets",
    text = """\
        Packets whose bytes were not inspected in their stream, because its memory was used up.""",
}
records_lost = {
    unit = "records",
    text = "EVE records that were lost, because the output was too slow or failed.",
}
reloads = { unit = "reloads", text = "Replacements of the rules while packets flow." }
*/
