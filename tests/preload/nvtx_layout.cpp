// interpose/nvtx.h says what NVTX's own headers say. Compiled where they are at hand.
#include <cstddef>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

#include "interpose/nvtx.h"

namespace {

using namespace fragscope::interpose::nvtx;

static_assert(kCallbacksTable == NVTX_ETID_CALLBACKS);
static_assert(sizeof(Callbacks) == sizeof(NvtxExportTableCallbacks));
static_assert(offsetof(Callbacks, module_functions) ==
              offsetof(NvtxExportTableCallbacks, GetModuleFunctionTable));
static_assert(kCore == NVTX_CB_MODULE_CORE && kCore2 == NVTX_CB_MODULE_CORE2 &&
              kModules == NVTX_CB_MODULE_SIZE);

#define SAME(ours, theirs) static_assert(static_cast<int>(ours) == static_cast<int>(theirs))
SAME(kMarkEx, NVTX_CBID_CORE_MarkEx);
SAME(kMarkA, NVTX_CBID_CORE_MarkA);
SAME(kMarkW, NVTX_CBID_CORE_MarkW);
SAME(kRangeStartEx, NVTX_CBID_CORE_RangeStartEx);
SAME(kRangeStartA, NVTX_CBID_CORE_RangeStartA);
SAME(kRangeStartW, NVTX_CBID_CORE_RangeStartW);
SAME(kRangeEnd, NVTX_CBID_CORE_RangeEnd);
SAME(kRangePushEx, NVTX_CBID_CORE_RangePushEx);
SAME(kRangePushA, NVTX_CBID_CORE_RangePushA);
SAME(kRangePushW, NVTX_CBID_CORE_RangePushW);
SAME(kRangePop, NVTX_CBID_CORE_RangePop);
SAME(kNameOsThreadA, NVTX_CBID_CORE_NameOsThreadA);
SAME(kNameOsThreadW, NVTX_CBID_CORE_NameOsThreadW);
SAME(kCoreSize, NVTX_CBID_CORE_SIZE);
SAME(kDomainMarkEx, NVTX_CBID_CORE2_DomainMarkEx);
SAME(kDomainRangeStartEx, NVTX_CBID_CORE2_DomainRangeStartEx);
SAME(kDomainRangeEnd, NVTX_CBID_CORE2_DomainRangeEnd);
SAME(kDomainRangePushEx, NVTX_CBID_CORE2_DomainRangePushEx);
SAME(kDomainRangePop, NVTX_CBID_CORE2_DomainRangePop);
SAME(kDomainRegisterStringA, NVTX_CBID_CORE2_DomainRegisterStringA);
SAME(kDomainRegisterStringW, NVTX_CBID_CORE2_DomainRegisterStringW);
SAME(kDomainCreateA, NVTX_CBID_CORE2_DomainCreateA);
SAME(kDomainCreateW, NVTX_CBID_CORE2_DomainCreateW);
SAME(kDomainDestroy, NVTX_CBID_CORE2_DomainDestroy);
SAME(kCore2Size, NVTX_CBID_CORE2_SIZE);
SAME(kAscii, NVTX_MESSAGE_TYPE_ASCII);
SAME(kUnicode, NVTX_MESSAGE_TYPE_UNICODE);
SAME(kRegistered, NVTX_MESSAGE_TYPE_REGISTERED);
SAME(kUnsigned64, NVTX_PAYLOAD_TYPE_UNSIGNED_INT64);
SAME(kSigned64, NVTX_PAYLOAD_TYPE_INT64);
SAME(kDouble, NVTX_PAYLOAD_TYPE_DOUBLE);
SAME(kUnsigned32, NVTX_PAYLOAD_TYPE_UNSIGNED_INT32);
SAME(kSigned32, NVTX_PAYLOAD_TYPE_INT32);
SAME(kFloat, NVTX_PAYLOAD_TYPE_FLOAT);
SAME(kNoTracking, NVTX_NO_PUSH_POP_TRACKING);
SAME(sizeof(Attributes), sizeof(nvtxEventAttributes_t));
SAME(offsetof(Attributes, payload_type), offsetof(nvtxEventAttributes_t, payloadType));
SAME(offsetof(Attributes, payload), offsetof(nvtxEventAttributes_t, payload));
SAME(offsetof(Attributes, message_type), offsetof(nvtxEventAttributes_t, messageType));
SAME(offsetof(Attributes, message), offsetof(nvtxEventAttributes_t, message));

}  // namespace
#endif
