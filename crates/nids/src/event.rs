//! Events report irregularities in packets, TCP streams and application protocols. Rules can test
//! for an event by its name.

/// Packet decoder and TCP stream events, which rules test with the keywords `decode-event` and
/// `stream-event`.
const EVENTS: &[(&str, &str)] = &[
    ("stream-event", "pkt_invalid_timestamp"),
    ("stream-event", "pkt_invalid_ack"),
    ("stream-event", "pkt_broken_ack"),
    ("stream-event", "pkt_retransmission"),
    ("stream-event", "pkt_spurious_retransmission"),
    ("stream-event", "est_packet_out_of_window"),
    ("stream-event", "est_syn_resend"),
    ("stream-event", "est_syn_toclient"),
    ("stream-event", "est_synack_resend"),
    ("stream-event", "est_synack_toserver"),
    ("stream-event", "est_invalid_ack"),
    ("stream-event", "est_pkt_before_last_ack"),
    ("stream-event", "3whs_ack_in_wrong_dir"),
    ("stream-event", "3whs_synack_resend_with_different_ack"),
    ("stream-event", "3whs_synack_resend_with_diff_seq"),
    ("stream-event", "3whs_synack_with_wrong_ack"),
    ("stream-event", "3whs_right_seq_wrong_ack_evasion"),
    ("stream-event", "3whs_wrong_seq_wrong_ack"),
    ("stream-event", "3whs_syn_resend_diff_seq_on_syn_recv"),
    ("stream-event", "3whs_syn_toclient_on_syn_recv"),
    ("stream-event", "3whs_async_wrong_seq"),
    ("stream-event", "4whs_synack_with_wrong_ack"),
    ("stream-event", "reassembly_seq_gap"),
    ("stream-event", "reassembly_overlap_different_data"),
    ("stream-event", "reassembly_no_segment"),
    ("stream-event", "reassembly_depth_reached"),
    ("stream-event", "reassembly_segment_before_base_seq"),
    ("stream-event", "fin_out_of_window"),
    ("stream-event", "fin_invalid_ack"),
    ("stream-event", "rst_but_no_session"),
    ("stream-event", "rst_invalid_ack"),
    ("stream-event", "shutdown_syn_resend"),
    ("stream-event", "timewait_ack_wrong_seq"),
    ("stream-event", "suspected_rst_inject"),
    ("stream-event", "wrong_thread"),
    ("decode-event", "ipv4.frag_overlap"),
    ("decode-event", "ipv4.frag_too_large"),
    ("decode-event", "ipv6.frag_overlap"),
    ("decode-event", "ipv6.frag_too_large"),
];

/// Application protocol events, which rules test with the keyword `app-layer-event`.
const APP_EVENTS: &[(&str, &str)] = &[
    ("http2", "userinfo_in_uri"),
    ("http2", "authority_host_mismatch"),
    ("smb", "file_overlap"),
    ("smb", "malformed_data"),
    ("http", "unable_to_match_response_to_request"),
    ("http", "double_encoded_uri"),
    ("http", "missing_host_header"),
    ("http", "host_header_ambiguous"),
    ("http", "invalid_request_chunk_len"),
    ("http", "invalid_response_chunk_len"),
    ("http", "gzip_decompression_failed"),
];

/// Returns the event with this name, or `None` if it is unknown. `kind` is the keyword for the
/// test, `decode-event` or `stream-event`.
pub fn find(kind: &str, name: &str) -> Option<&'static str> {
    EVENTS.iter().find(|event| event.0 == kind && event.1 == name).map(|event| event.1)
}

/// Returns the event of the protocol `app` with this name, or `None` if it is unknown.
pub fn find_app(app: &str, name: &str) -> Option<&'static str> {
    APP_EVENTS.iter().find(|event| event.0 == app && event.1 == name).map(|event| event.1)
}
