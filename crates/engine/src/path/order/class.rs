//! Classes: one per packet in flight.

use godwit_packet::Descriptor;

use super::Order;

impl Order {
    /// Stores the class of a packet in flight. The class is needed only if the function chain has
    /// class rules.
    #[inline]
    pub(crate) fn classify(&mut self, descriptor: &Descriptor, class: u8) {
        let slot = self.slot(descriptor);
        self.classes[slot] = class;
    }

    /// Stores the classes of several packets in their ring slots.
    #[inline]
    pub(crate) fn classify_all(&mut self, descriptors: &[Descriptor], classes: &[u8]) {
        match self.slots(descriptors) {
            Some(slots) => self.classes[slots].copy_from_slice(classes),
            None => descriptors.iter().zip(classes).for_each(|(descriptor, &class)| self.classify(descriptor, class)),
        }
    }

    /// Returns the stored class of a packet.
    #[inline]
    pub(crate) fn class(&self, descriptor: &Descriptor) -> u8 {
        self.classes[self.slot(descriptor)]
    }
}
